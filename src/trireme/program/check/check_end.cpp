// The rank's check, continued: the end of a step (gradient exchange, tied weights, the norm).
#include <algorithm>

#include "trireme/base/index.h"
#include "trireme/program/check/check_rank.h"

namespace trireme {

/// Whether replicas add up only their own gradients of the group; the last group holds the step's values.
bool RankCheck::sums_own(const Stage& stage, size_t group) const {
  return program_.update.sums_own() && group + 1 < stage.reduced.size();
}

void RankCheck::push(const Instruction& instruction) {
  Stage& stage = stage_of(instruction);
  const GradientExchange exchange = program_.update.exchange;
  require(instruction.group >= 0 && at(instruction.group) + 1 < stage.reduced.size(), "there is no such group");
  if (exchange == GradientExchange::kAsyncServers) {
    require(normed_, "asynchronous servers get gradients that are clipped already: a Norm is missing");
  } else {
    require(exchange == GradientExchange::kServers, "there are no servers to push to");
    check_group(instruction, stage);
  }
  require(!stage.reduced[at(instruction.group)], "the group is pushed twice");
  stage.reduced[at(instruction.group)] = true;
}

void RankCheck::combine(const Instruction& instruction) {
  require(program_.update.combines(), "replicas have nothing to combine");
  require(!combined_ && !normed_, "it is done twice, or after the norm");
  for (const Stage& stage : stages_) require_sums(stage);
  combined_ = true;
  replicas_.start(interpreter_.num_collectives(rank_), instruction);
}

void RankCheck::meet(const Instruction& instruction) {
  require(program_.update.exchange == GradientExchange::kLocal, "replicas do not update alone");
  require(stepped_ && !met_, "replicas meet once, after the update");
  met_ = true;
  replicas_.start(interpreter_.num_collectives(rank_), instruction);
}

void RankCheck::tie(const Instruction& instruction) {
  const OpCode op = instruction.op;
  const std::vector<TiedWeight>& all = program_.update.tied;
  require(instruction.tied >= 0 && at(instruction.tied) < all.size(), "there is no such tied weight");
  const TiedWeight& tied = all[at(instruction.tied)];
  const bool at_use = op == OpCode::kSendTiedGradient || op == OpCode::kTakeTiedWeight;
  require(instruction.stage == (at_use ? tied.use : tied.owner), "that is not the stage of this end");
  require(std::max(program_.owner_of(at_use ? tied.owner : tied.use), 0) == program_.pipeline_rank + instruction.peer,
          "the other end is on another rank");
  const Stage& stage = stage_of(instruction);
  require(!tied_[op][at(instruction.tied)], "it is done twice");
  tied_[op][at(instruction.tied)] = true;
  if (op == OpCode::kSendTiedWeight || op == OpCode::kTakeTiedWeight) {
    require(stepped_ != program_.update.refreshes_first, "the owner has other weights at that point");
    return;
  }
  require(tied.trained, "the weight has no gradients");
  require(!stepped_ && !normed_ && !combined_, "the sums of gradients have been used already");
  require_sums(stage);
}

/// Requires that all gradients of the stage have been summed, as the end of the step needs them.
void RankCheck::require_sums(const Stage& stage) const {
  for (size_t group = 0; group < stage.reduced.size(); ++group) {
    const bool reduced = replicas_.count() == 1 || sums_own(stage, group) || stage.reduced[group];
    const bool summed =
        scatters_each(stage, group) ? !stage.scattered[group].empty() : reduced && !stage.slots[0][group].empty();
    require(summed, "the stage's gradients have not been summed");
  }
}

void RankCheck::norm() {
  require(program_.update.norm && !normed_, "nobody asks for a norm, or for another one");
  for (const Stage& stage : stages_) require_sums(stage);
  normed_ = true;
}

void RankCheck::pull() {
  require(program_.update.has_servers(), "there are no servers to pull from");
  require(stepped_ && !pulled_, "weights are pulled once, after the update");
  pulled_ = true;
}

void RankCheck::check_before_update() const {
  const UpdateShape& update = program_.update;
  require(normed_ == update.norm, "the norm is missing");
  require(combined_ == update.combines(), "replicas have not combined their gradients");
  for (const Stage& stage : stages_) {
    const auto end = stage.reduced.end() - 1;
    require(!update.has_servers() || std::find(stage.reduced.begin(), end, false) == end,
            "a group has not been pushed");
  }
}

void RankCheck::check_ends() const {
  const UpdateShape& update = program_.update;
  require(pulled_ == update.has_servers(), "new weights are never pulled");
  require(met_ == (update.exchange == GradientExchange::kLocal), "replicas that update alone never meet");
  for (size_t i = 0; i < update.tied.size(); ++i) {
    const int owner = std::max(program_.owner_of(update.tied[i].owner), 0);
    const int use = std::max(program_.owner_of(update.tied[i].use), 0);
    const bool owns = owner == program_.pipeline_rank, uses = use == program_.pipeline_rank, apart = owner != use;
    const auto done = [&](OpCode op) -> bool { return tied_.at(op)[i]; };
    if (update.tied[i].trained && update.exchange != GradientExchange::kServers) {
      require(done(OpCode::kAddTiedGradient) == owns, "the gradient of a tied weight's other use is never added");
      require(done(OpCode::kSendTiedGradient) == (uses && apart), "the gradient of a tied weight is never sent");
    }
    require(done(OpCode::kSendTiedWeight) == (owns && apart), "a tied weight is never sent to its copy");
    require(done(OpCode::kTakeTiedWeight) == (uses && apart), "the copy of a tied weight is never refreshed");
  }
}

}  // namespace trireme
