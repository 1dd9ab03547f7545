// The part of a rank's check that concerns sums, versions of the weights and updates.
#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/index.h"
#include "trireme/program/check_rank.h"

namespace trireme {

void RankCheck::add_slot(const Instruction& instruction) {
  Stage& stage = stage_of(instruction);
  require(instruction.group >= 0 && at(instruction.group) < stage.reduced.size(), "there is no such group");
  require(instruction.slot >= 0 && instruction.from_slot >= 0, "it names no slot");
  require(!stage.reduced[at(instruction.group)], "the group has been reduced already");
  PartialSum& into = stage.slots[at(instruction.slot)][at(instruction.group)];
  PartialSum& from = stage.slots[at(instruction.from_slot)][at(instruction.group)];
  require(!into.empty() && !from.empty(), "it reads an empty slot");
  const auto sum = tree_.add(into, from);
  if (!sum) fail(fmt::format("the tree does not add {} and {}", into.to_string(), from.to_string()));
  into = *sum;
  from = {};
}

void RankCheck::collective(const Instruction& instruction) {
  Stage& stage = stage_of(instruction);
  require(instruction.group >= 0 && at(instruction.group) < stage.reduced.size(), "there is no such group");
  if (instruction.op != OpCode::kAllGather) {
    require(!stage.reduced[at(instruction.group)], "the group is reduced twice");
    stage.reduced[at(instruction.group)] = true;
  }
  replicas_.start(replica_, instruction);
}

void RankCheck::change_versions(const Instruction& instruction) {
  Stage& stage = stage_of(instruction);
  const int version = instruction.version;
  require(version >= 0 && version <= program_.num_updates, "there is no such version");
  const auto kept = stage.stashed.begin() + version;
  if (instruction.op == OpCode::kStashWeights) {
    require(version == stage.newest, "the weights are not of that version");
    require(!*kept, "it is stashed already");
    *kept = true;
    return;
  }
  require(*kept, "that version is not stashed");
  if (instruction.op == OpCode::kFree) {
    require(stage.restored != version, "that version is about to be used");
    *kept = false;
  } else {
    require(stage.restored < 0, "another version has been restored and not been used");
    stage.restored = version;
  }
}

bool RankCheck::optimizer_step(const Instruction& instruction) {
  const bool one_stage = program_.num_updates > 1;
  if (replicas_.count() > 1 && !replicas_.all_started(replica_)) {
    waiting_for_ = "the sums of the other replicas";
    return false;
  }
  if (one_stage) {
    Stage& stage = stage_of(instruction);
    require(instruction.version == stage.newest + 1, "it is not the next version of the weights");
    update(stage);
    return true;
  }
  require(instruction.stage < 0 && instruction.version < 0, "a program with one update makes it for all its stages");
  for (Stage& stage : stages_) update(stage);
  stepped_ = true;
  return true;
}

void RankCheck::update(Stage& stage) {
  require(stage.restored < 0, "weights are restored and never used");
  require(stage.newest < program_.num_updates, "there are no more updates");
  const size_t count = at(replicas_.slots_of(replica_));
  for (size_t group = 0; group < stage.reduced.size(); ++group) {
    require(replicas_.count() == 1 || stage.reduced[group], "a group has not been reduced");
    std::vector<PartialSum> sums;
    for (size_t slot = 0; slot < stage.slots.size(); ++slot) {
      PartialSum& sum = stage.slots[slot][group];
      if ((slot < count) == sum.empty()) {
        fail(fmt::format("slot {} of group {} holds {}", slot, group, sum.to_string()));
      }
      if (slot < count) sums.push_back(sum);
      sum = {};
    }
    if (sums.empty()) fail(fmt::format("there is no sum of group {}", group));
    replicas_.bring(replica_, stage.number, static_cast<int>(group), stage.newest, sums);
    stage.reduced[group] = false;
  }
  const auto own = static_cast<size_t>(&stage - stages_.data());
  staleness_[own] = std::max(staleness_[own], stage.newest - stage.oldest_used);
  stage.oldest_used = -1;
  ++stage.newest;
}

}  // namespace trireme
