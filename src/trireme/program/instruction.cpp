#include "trireme/program/instruction.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "trireme/program/text.h"

namespace trireme {

std::string PipelineMessage::to_string() const {
  return fmt::format("the {} of stage {}, micro-batch {}", is_gradient ? "gradient for the output" : "input", stage,
                     micro_batch);
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

int Program::sharded_groups_of(int stage) const {
  if (zero.zero == 0) return 0;
  if (zero.sharded_groups.empty()) return groups_of(stage);
  return zero.sharded_groups[static_cast<size_t>(stage < 0 ? 0 : stage)];
}

int Program::num_lanes() const {
  if (replicas_of_rank.empty()) return num_ranks;
  return std::accumulate(replicas_of_rank.begin(), replicas_of_rank.end(), 1,
                         [](int lanes, int replicas) { return std::lcm(lanes, replicas); });
}

int Program::replica_with(int micro_batch, int rank) const {
  const int lanes = num_lanes(), per_update = num_micro_batches / std::max(num_updates, 1) / lanes;
  return replica_of_lane(micro_batch / per_update % lanes, rank);
}

size_t Program::end_of_group_instructions(size_t at) const {
  while (at < instructions.size() && follows_pass(instructions[at].op)) ++at;
  return at;
}

std::string Program::to_string() const {
  std::string text;
  for (const Instruction& instruction : instructions) text += instruction.to_string() + "\n";
  return text;
}

}  // namespace trireme
