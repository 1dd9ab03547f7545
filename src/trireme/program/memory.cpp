#include "trireme/program/memory.h"

#include <algorithm>
#include <map>

namespace trireme {
namespace {

/// Change in the number of stage activations held.
int change_of_activations(const Instruction& instruction) {
  switch (instruction.op) {
    case OpCode::kForward:
    case OpCode::kRecompute:
      return 1;
    case OpCode::kBackward:
    case OpCode::kWeightGrad:
      return -1;
    case OpCode::kFree:
      return instruction.version < 0 ? -1 : 0;
    default:
      return 0;
  }
}

}  // namespace

std::vector<double> activations_held(const Program& program) {
  const auto num_own = static_cast<double>(std::max<size_t>(program.own_stages().size(), 1));
  std::vector<double> held;
  int count = 0;
  for (const Instruction& instruction : program.instructions) {
    count += change_of_activations(instruction);
    held.push_back(count / num_own);
  }
  return held;
}

std::vector<double> peak_activations(const Schedule& schedule) {
  std::vector<double> peaks;
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    int count = 0, most = 0;
    for (const Instruction& instruction : schedule.ranks[rank]) {
      count += change_of_activations(instruction);
      most = std::max(most, count);
    }
    peaks.push_back(static_cast<double>(most) / static_cast<double>(schedule.stages_of(static_cast<int>(rank)).size()));
  }
  return peaks;
}

PeakMemory peak_memory(const Program& program) {
  const auto num_own = static_cast<double>(std::max<size_t>(program.own_stages().size(), 1));
  PeakMemory peak;
  for (const double held : activations_held(program)) peak.activations = std::max(peak.activations, held);
  int inputs = 0, buffers = 0;
  std::map<int, int> versions;
  for (const Instruction& instruction : program.instructions) {
    if (instruction.op == OpCode::kFree && instruction.version < 0) ++inputs;
    if (instruction.op == OpCode::kRecompute) --inputs;
    if (is_receive(instruction.op)) ++buffers;
    const int stage = instruction.stage;
    if (instruction.op == OpCode::kForward && program.is_elsewhere(stage - 1)) --buffers;
    if (makes_input_gradient(instruction.op) && program.is_elsewhere(stage + 1)) --buffers;
    if (instruction.op == OpCode::kStashWeights) ++versions[stage];
    if (instruction.op == OpCode::kFree && instruction.version >= 0) --versions[stage];
    peak.inputs = std::max(peak.inputs, inputs / num_own);
    peak.receive_buffers = std::max(peak.receive_buffers, buffers);
    peak.weight_versions = std::max(peak.weight_versions, 1 + versions[stage]);
  }
  return peak;
}

}  // namespace trireme
