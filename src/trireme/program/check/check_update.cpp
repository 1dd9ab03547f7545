// The rank's check, continued: sums, weight versions and updates.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "trireme/base/index.h"
#include "trireme/program/check/check_rank.h"

namespace trireme {

/// Group instructions run during the pass before them; the executor would never reach one that follows no pass.
void RankCheck::check_group(const Instruction& instruction, const Stage& stage) const {
  require(instruction.group >= 0 && at(instruction.group) < stage.reduced.size(), "there is no such group");
  if (instruction.op == OpCode::kAllGather) return;
  require(filled_ == instruction.stage, "it does not follow a pass that fills its group");
}

void RankCheck::add_slot(const Instruction& instruction) {
  Stage& stage = stage_of(instruction);
  check_group(instruction, stage);
  require(!scatters_each(stage, at(instruction.group)), "each micro-batch of the group is scattered by itself");
  require(instruction.slot >= 0 && instruction.from_slot >= 0, "it names no slot");
  require(!normed_ && !combined_, "the sums of gradients have been used already");
  require(!stage.reduced[at(instruction.group)], "the group has been reduced already");
  PartialSum& into = stage.slots[at(instruction.slot)][at(instruction.group)];
  PartialSum& from = stage.slots[at(instruction.from_slot)][at(instruction.group)];
  require(!into.empty() && !from.empty(), "it reads an empty slot");
  auto sum = tree_.add(into, from);
  const bool own = sums_own(stage, at(instruction.group)) && instruction.slot == 0;
  if (!sum && own && into.last == from.first) sum = PartialSum{into.first, from.last};
  if (!sum) fail(fmt::format("the tree does not add {} and {}", into.to_string(), from.to_string()));
  into = *sum;
  from = {};
}

void RankCheck::collective(const Instruction& instruction) {
  Stage& stage = stage_of(instruction);
  check_group(instruction, stage);
  const size_t group = at(instruction.group);
  const bool sharded = group < stage.gathered.size();
  if (instruction.op == OpCode::kAllGather) {
    require(sharded, "replicas do not share the group: each has its weights");
    require(!stage.gathered[group], "the group is gathered twice");
    stage.gathered[group] = true;
  } else {
    const bool scatters = instruction.op == OpCode::kReduceScatter;
    require(sharded || !scatters, "replicas do not share the group: it needs an AllReduce");
    require(scatters || !sharded, "replicas share the group: it needs a ReduceScatter");
    if (scatters_each(stage, group)) {
      scatter_micro_batch(instruction, stage);
    } else {
      require(!stage.reduced[group], "the group is reduced twice");
      require(!instruction.add, "it adds to a share that is empty");
      stage.reduced[group] = true;
    }
  }
  replicas_.start(interpreter_.num_collectives(rank_), instruction);
}

/// Moves the gradient of the last pass to the shard, whichever slot it is in.
void RankCheck::scatter_micro_batch(const Instruction& instruction, Stage& stage) const {
  const size_t group = at(instruction.group);
  std::vector<int>& shard = stage.scattered[group];
  const auto full = std::find_if(stage.slots.begin(), stage.slots.end(),
                                 [group](const std::vector<PartialSum>& slot) { return !slot[group].empty(); });
  require(full != stage.slots.end(), "its micro-batch has been scattered already");
  require(instruction.add == !shard.empty(),
          instruction.add ? "it adds to a share that is empty" : "it overwrites a sum");
  shard.push_back((*full)[group].first);
  (*full)[group] = {};
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

void RankCheck::optimizer_step(const Instruction& instruction) {
  if (program_.num_updates > 1) {
    Stage& stage = stage_of(instruction);
    require(instruction.version == stage.newest + 1, "it is not the next version of the weights");
    return update(stage);
  }
  require(instruction.stage < 0 && instruction.version < 0, "a program with one update makes it for all its stages");
  check_before_update();
  for (Stage& stage : stages_) update(stage);
  stepped_ = true;
}

void RankCheck::update(Stage& stage) {
  require(stage.restored < 0, "weights are restored and never used");
  require(stage.newest < program_.num_updates, "there are no more updates");
  const size_t count = at(replicas_.slots_of(replica_));
  for (size_t group = 0; group < stage.reduced.size(); ++group) {
    const bool each = scatters_each(stage, group), own = sums_own(stage, group);
    require(replicas_.count() == 1 || each || own || stage.reduced[group], "a group has not been reduced");
    std::vector<PartialSum> sums;
    for (size_t slot = 0; slot < stage.slots.size(); ++slot) {
      PartialSum& sum = stage.slots[slot][group];
      if ((!each && slot < (own ? 1 : count)) == sum.empty()) {
        fail(fmt::format("slot {} of group {} holds {}", slot, group, sum.to_string()));
      }
      if (slot < count) sums.push_back(sum);
      sum = {};
    }
    if (own) {
      std::vector<int> micro_batches(at(sums[0].last - sums[0].first));
      std::iota(micro_batches.begin(), micro_batches.end(), sums[0].first);
      replicas_.bring_micro_batches({stage.number, static_cast<int>(group), stage.newest}, micro_batches);
      stage.reduced[group] = false;
      continue;
    }
    if (each) {
      replicas_.bring_micro_batches({stage.number, static_cast<int>(group), stage.newest}, stage.scattered[group]);
      stage.scattered[group].clear();
      continue;
    }
    if (sums.empty()) fail(fmt::format("there is no sum of group {}", group));
    replicas_.bring(replica_, {stage.number, static_cast<int>(group), stage.newest}, sums);
    stage.reduced[group] = false;
  }
  stage.gathered.assign(stage.gathered.size(), false);  // each replica has only its shard of the new weights
  const auto own = static_cast<size_t>(&stage - stages_.data());
  staleness_[own] = std::max(staleness_[own], stage.newest - stage.oldest_used);
  stage.oldest_used = -1;
  ++stage.newest;
}

}  // namespace trireme
