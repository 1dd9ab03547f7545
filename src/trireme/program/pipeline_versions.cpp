#include <algorithm>

#include "trireme/program/pipeline_parts.h"

namespace trireme {
namespace {

/// By micro-batch: the newest version at the forward pass of `stage`, following its rank's order.
std::vector<int> newest_at_forward(const Schedule& schedule, int stage) {
  std::vector<int> newest(static_cast<size_t>(schedule.num_micro_batches));
  int version = 0;
  for (const Instruction& i : schedule.ranks[static_cast<size_t>(schedule.rank_of_stage[static_cast<size_t>(stage)])]) {
    if (i.stage != stage) continue;
    if (i.op == OpCode::kForward) newest[static_cast<size_t>(i.micro_batch)] = version;
    if (makes_weight_gradient(i.op) && (i.micro_batch + 1) % schedule.micro_batches_in_update() == 0) ++version;
  }
  return newest;
}

}  // namespace

WeightVersions::WeightVersions(const Schedule& schedule, int rank) : newest_(at(schedule.num_stages())) {
  of_.resize(newest_.size());
  to_use_.resize(newest_.size());
  const int every = schedule.micro_batches_in_update();
  const std::vector<int> at_entry = newest_at_forward(schedule, 0);
  for (int stage = 0; stage < schedule.num_stages(); ++stage) {
    if (schedule.rank_of_stage[at(stage)] != rank) continue;
    std::vector<int>& versions = of_[at(stage)];
    switch (schedule.weights) {
      case WeightRule::kNewest:
        versions.assign(at(schedule.num_micro_batches), 0);
        break;
      case WeightRule::kStash:
        versions = newest_at_forward(schedule, stage);
        break;
      case WeightRule::kVerticalSync:
        versions = at_entry;
        break;
      case WeightRule::kDoubleBuffer:
        for (int m = 0; m < schedule.num_micro_batches; ++m) versions.push_back(std::max(m / every - 1, 0));
        break;
    }
    to_use_[at(stage)].resize(at(schedule.num_micro_batches / every) + 1);
    for (const int version : versions) to_use_[at(stage)][at(version)] += 2;  // forward and backward pass
  }
}

bool WeightVersions::used(int stage, int micro_batch) {
  const int version = of(stage, micro_batch);
  return --to_use_[at(stage)][at(version)] == 0 && version != newest(stage);
}

bool WeightVersions::update(int stage) { return to_use_[at(stage)][at(newest_[at(stage)]++)] > 0; }

}  // namespace trireme
