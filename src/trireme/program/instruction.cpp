#include "trireme/program/instruction.h"

#include "trireme/program/text.h"

namespace trireme {

bool is_compute(OpCode op) { return op <= OpCode::kRecompute; }

bool makes_weight_gradient(OpCode op) { return op == OpCode::kBackward || op == OpCode::kWeightGrad; }

bool makes_input_gradient(OpCode op) { return op == OpCode::kBackward || op == OpCode::kBackwardInput; }

bool is_send(OpCode op) { return op == OpCode::kSendActivation || op == OpCode::kSendGradient; }

bool is_receive(OpCode op) { return op == OpCode::kRecvActivation || op == OpCode::kRecvGradient; }

std::string Instruction::to_string() const { return instruction_to_text(*this); }

std::vector<int> Program::own_stages() const {
  if (!is_pipeline()) return {-1};
  std::vector<int> own;
  for (int stage = 0; stage < num_stages(); ++stage) {
    if (rank_of_stage[static_cast<size_t>(stage)] == pipeline_rank) own.push_back(stage);
  }
  return own;
}

std::string Program::to_string() const {
  std::string text;
  for (const Instruction& instruction : instructions) text += instruction.to_string() + "\n";
  return text;
}

}  // namespace trireme
