#include "trireme/program/instruction.h"

#include <fmt/format.h>

#include <numeric>

#include "trireme/program/text.h"

namespace trireme {

bool is_compute(OpCode op) { return op <= OpCode::kRecompute; }

bool makes_weight_gradient(OpCode op) { return op == OpCode::kBackward || op == OpCode::kWeightGrad; }

bool makes_input_gradient(OpCode op) { return op == OpCode::kBackward || op == OpCode::kBackwardInput; }

bool is_send(OpCode op) { return op == OpCode::kSendActivation || op == OpCode::kSendGradient; }

bool is_receive(OpCode op) { return op == OpCode::kRecvActivation || op == OpCode::kRecvGradient; }

std::string PipelineMessage::to_string() const {
  return fmt::format("the {} of stage {}, micro-batch {}", is_gradient ? "gradient for the output" : "input", stage,
                     micro_batch);
}

PipelineMessage message_of(const Instruction& instruction) {
  const bool is_gradient = instruction.op == OpCode::kSendGradient || instruction.op == OpCode::kRecvGradient;
  const int to_receiver = !is_send(instruction.op) ? 0 : is_gradient ? -1 : 1;
  return {is_gradient, instruction.stage + to_receiver, instruction.micro_batch};
}

std::string Instruction::to_string() const { return instruction_to_text(*this); }

std::vector<int> Program::own_stages() const {
  if (!is_pipeline()) return {-1};
  std::vector<int> own;
  for (int stage = 0; stage < num_stages(); ++stage) {
    if (rank_of_stage[static_cast<size_t>(stage)] == pipeline_rank) own.push_back(stage);
  }
  return own;
}

int Program::owner_of(int stage) const {
  return !is_pipeline() || stage < 0 || stage >= num_stages() ? -1 : rank_of_stage[static_cast<size_t>(stage)];
}

int Program::shared_groups_of(int stage) const {
  if (zero.zero == 0) return 0;
  if (zero.shared_groups.empty()) return groups_of(stage);
  return zero.shared_groups[static_cast<size_t>(stage < 0 ? 0 : stage)];
}

int Program::num_lanes() const {
  if (replicas_of_rank.empty()) return num_ranks;
  return std::accumulate(replicas_of_rank.begin(), replicas_of_rank.end(), 1,
                         [](int lanes, int replicas) { return std::lcm(lanes, replicas); });
}

int Program::replica_with(int micro_batch, int rank) const {
  const int lanes = num_lanes(), per_update = num_micro_batches / num_updates / lanes;
  return replica_of_lane(micro_batch / per_update % lanes, rank);
}

size_t Program::end_of_group_instructions(size_t at) const {
  while (at < instructions.size() && instructions[at].group >= 0 && instructions[at].op != OpCode::kAllGather) ++at;
  return at;
}

std::string Program::to_string() const {
  std::string text;
  for (const Instruction& instruction : instructions) text += instruction.to_string() + "\n";
  return text;
}

}  // namespace trireme
