#include "trireme/program/check/check_rank.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/index.h"

namespace trireme {
namespace {

bool has_no_gradients(OpCode op) {
  return op == OpCode::kForward || op == OpCode::kSendActivation || op == OpCode::kRecvActivation ||
         op == OpCode::kAllGather;
}

/// An error whose message already names the rank and the instruction.
class RankError : public Error {
 public:
  using Error::Error;
};

}  // namespace

RankCheck::RankCheck(const std::vector<Program>& programs, size_t number, const Interpreter& interpreter,
                     const SumTree& tree, Channels& channels, Replicas& replicas)
    : program_(programs[number]),
      rank_(number),
      replica_(ProgramPlaces(programs.front()).replica_of(number)),
      interpreter_(interpreter),
      tree_(tree),
      channels_(channels),
      replicas_(replicas) {
  for (const int own : program_.own_stages()) {
    Stage& stage = stages_.emplace_back();
    const auto groups = at(program_.groups_of(own));
    stage.number = own;
    stage.slots.assign(at(program_.num_slots), std::vector<PartialSum>(groups));
    stage.reduced.resize(groups);
    stage.stashed.resize(at(program_.num_updates) + 1);
    const auto sharded = at(program_.sharded_groups_of(own));
    if (sharded > groups)
      throw Error(fmt::format("stage {} has {} groups, and replicas share {}", own, groups, sharded));
    stage.gathered.resize(sharded);
    stage.scattered.resize(sharded);
  }
  staleness_.resize(stages_.size());
  for (const OpCode op :
       {OpCode::kSendTiedGradient, OpCode::kAddTiedGradient, OpCode::kSendTiedWeight, OpCode::kTakeTiedWeight}) {
    tied_[op].resize(program_.update.tied.size());
  }
}

void RankCheck::fail(const std::string& cause) const {
  throw RankError(fmt::format(
      "program of rank {}{}: {}", rank_,
      is_done() ? "" : fmt::format(", instruction {}, {}", at_, program_.instructions[at_].to_string()), cause));
}

RankCheck::Stage& RankCheck::stage_of(const Instruction& instruction) {
  for (Stage& stage : stages_) {
    if (stage.number == instruction.stage) return stage;
  }
  fail(instruction.stage < 0 ? "it names no stage" : "this rank does not hold that stage");
}

RankCheck::Work& RankCheck::work_of(const Instruction& instruction) {
  Stage& stage = stage_of(instruction);
  require(instruction.micro_batch >= 0 && instruction.micro_batch < program_.num_micro_batches,
          "there is no such micro-batch");
  return stage.work[instruction.micro_batch];
}

/// The input of a forward or a backward pass comes in a message, or from a stage on the same rank.
void RankCheck::expect_pass(const Instruction& instruction) {
  Work& work = work_of(instruction);
  const bool gradient = instruction.op != OpCode::kForward;
  if (gradient) {
    require(work.forwarded, "its Forward is missing");
    require(!work.input_gradient, "it is done twice");
    require(!work.freed, "its activations have been freed: a Recompute is missing");
  } else {
    require(!work.forwarded, "it is done twice");
  }
  const PassResult input = interpreter_.dataflow_of(instruction).input;
  if (!input) return;  // first stage, or backward pass of the last stage
  if (input.travels) {
    require(gradient ? work.posted_gradient : work.posted_activation,
            gradient ? "its RecvGradient is missing" : "its RecvActivation is missing");
    return;
  }
  Instruction before = instruction;
  before.stage = input.from;
  require(gradient ? work_of(before).input_gradient : work_of(before).forwarded,
          gradient ? "the next stage, on the same rank, has not made its gradient"
                   : "the stage before it, on the same rank, has not made its input");
}

int RankCheck::use_weights(Stage& stage) {
  const auto missing = std::find(stage.gathered.begin(), stage.gathered.end(), false);
  if (missing != stage.gathered.end()) {
    fail(fmt::format("the weights of group {}, which replicas share, have not been gathered: an AllGather is missing",
                     missing - stage.gathered.begin()));
  }
  const int version = stage.restored >= 0 ? stage.restored : stage.newest;
  stage.restored = -1;
  return version;
}

void RankCheck::end_pass(Stage& stage, OpCode op) const {
  const bool kept = program_.zero.keep && !makes_input_gradient(op);
  if (program_.zero.zero == 3 && !kept) stage.gathered.assign(stage.gathered.size(), false);
}

void RankCheck::expect(const Instruction& instruction) {
  const bool ends = is_tied(instruction.op) || instruction.op == OpCode::kPull || instruction.op == OpCode::kMeet;
  require(!stepped_ || ends, "it comes after the optimizer's step");
  require(program_.num_updates > 0 || has_no_gradients(instruction.op), "a program without an update has no gradients");
  require(std::max(instruction.slot, instruction.from_slot) < program_.num_slots, "there is no such slot");
  const bool of_group = follows_pass(instruction.op) || instruction.op == OpCode::kAllGather;
  require(of_group || instruction.group < 0, "it names a group");
  if (instruction.op == OpCode::kForward || makes_input_gradient(instruction.op)) expect_pass(instruction);
  if (is_send(instruction.op)) expect_send(instruction);
}

void RankCheck::run(const Instruction& instruction) {
  if (!follows_pass(instruction.op)) filled_.reset();
  try {
    apply(instruction);
  } catch (const RankError&) {
    throw;
  } catch (const Error& error) {
    fail(error.what());  // found while comparing ranks: add this rank and instruction
  }
  if (makes_weight_gradient(instruction.op)) filled_ = instruction.stage;
  ++at_;
}

void RankCheck::apply(const Instruction& instruction) {
  switch (instruction.op) {
    case OpCode::kForward:
      return forward(instruction);
    case OpCode::kBackward:
    case OpCode::kBackwardInput:
      return backward(instruction);
    case OpCode::kWeightGrad:
      return weight_gradient(instruction);
    case OpCode::kRecompute:
      return free_or_recompute(instruction);
    case OpCode::kFree:
      return instruction.version >= 0 ? change_versions(instruction) : free_or_recompute(instruction);
    case OpCode::kSendActivation:
    case OpCode::kSendGradient:
      return channels_.send(rank_, interpreter_.other_end(rank_, instruction), message_of(instruction));
    case OpCode::kRecvActivation:
    case OpCode::kRecvGradient:
      return receive(instruction);
    case OpCode::kAddSlot:
      return add_slot(instruction);
    case OpCode::kAllReduce:
    case OpCode::kReduceScatter:
    case OpCode::kAllGather:
      return collective(instruction);
    case OpCode::kStashWeights:
    case OpCode::kRestoreWeights:
      return change_versions(instruction);
    case OpCode::kOptimizerStep:
      return optimizer_step(instruction);
    case OpCode::kPush:
      return push(instruction);
    case OpCode::kCombine:
      return combine(instruction);
    case OpCode::kMeet:
      return meet(instruction);
    case OpCode::kSendTiedGradient:
    case OpCode::kAddTiedGradient:
    case OpCode::kSendTiedWeight:
    case OpCode::kTakeTiedWeight:
      return tie(instruction);
    case OpCode::kNorm:
      return norm();
    case OpCode::kPull:
      return pull();
  }
  fail("there is no such instruction");
}

void RankCheck::forward(const Instruction& instruction) {
  Work& work = work_of(instruction);
  work.forwarded = true;
  work.version = use_weights(stage_of(instruction));
  end_pass(stage_of(instruction), instruction.op);
}

void RankCheck::backward(const Instruction& instruction) {
  Work& work = work_of(instruction);
  const int version = use_weights(stage_of(instruction));
  end_pass(stage_of(instruction), instruction.op);
  if (version != work.version) {
    fail(fmt::format("it uses version {} of the weights, its Forward version {}", version, work.version));
  }
  work.input_gradient = true;
  if (instruction.op == OpCode::kBackward) weight_gradient(instruction);
}

void RankCheck::weight_gradient(const Instruction& instruction) {
  Work& work = work_of(instruction);
  Stage& stage = stage_of(instruction);
  require(!normed_ && !combined_, "the sums of gradients have been used already");
  require(work.input_gradient, "its BackwardInput is missing");
  require(!work.weight_gradient, "it is done twice");
  require(instruction.slot >= 0, "it names no slot");
  work.weight_gradient = true;
  const PartialSum own{instruction.micro_batch, instruction.micro_batch + 1};
  std::vector<PartialSum>& sums = stage.slots[at(instruction.slot)];
  for (size_t group = 0; group < sums.size(); ++group) {
    require(!stage.reduced[group], "a group that it adds to has been reduced already");
    if (!instruction.add || scatters_each(stage, group)) {
      require(sums[group].empty(), "it overwrites a sum");
      sums[group] = own;
      continue;
    }
    require(!sums[group].empty(), "it adds to nothing");
    const auto sum = tree_.add(sums[group], own);
    if (!sum) fail(fmt::format("the tree does not add it to {}", sums[group].to_string()));
    sums[group] = *sum;
  }
  if (stage.oldest_used < 0 || work.version < stage.oldest_used) stage.oldest_used = work.version;
}

void RankCheck::free_or_recompute(const Instruction& instruction) {
  Work& work = work_of(instruction);
  require(work.forwarded, "its Forward is missing");
  require(!work.input_gradient, "its backward pass has been done");
  const bool frees = instruction.op == OpCode::kFree;
  require(work.freed != frees, frees ? "it is freed twice" : "its activations have not been freed");
  work.freed = frees;
  if (frees) return;
  if (use_weights(stage_of(instruction)) != work.version) fail("it uses other weights than its Forward");
  end_pass(stage_of(instruction), instruction.op);
}

void RankCheck::expect_send(const Instruction& instruction) {
  const Work& work = work_of(instruction);
  const bool gradient = instruction.op == OpCode::kSendGradient;
  const PipelineMessage message = message_of(instruction);
  require(program_.is_elsewhere(message.stage), "no other rank needs it");
  require(program_.owner_of(message.stage) == program_.pipeline_rank + instruction.peer,
          "it goes to a rank that does not hold that stage");
  require(gradient ? work.input_gradient : work.forwarded && !work.freed, "what it sends is not there");
  require(!interpreter_.is_there(message), "it is sent twice");
}

void RankCheck::receive(const Instruction& instruction) {
  Work& work = work_of(instruction);
  const bool gradient = instruction.op == OpCode::kRecvGradient;
  const int source = instruction.stage + (gradient ? 1 : -1);
  require(program_.is_elsewhere(source), "no other rank has it");
  require(program_.owner_of(source) == program_.pipeline_rank + instruction.peer,
          "it comes from a rank that does not hold that stage");
  bool& posted = gradient ? work.posted_gradient : work.posted_activation;
  require(!posted, "it is received twice");
  posted = true;
  channels_.post(interpreter_.other_end(rank_, instruction), rank_, message_of(instruction));
}

void RankCheck::finish() {
  require(stepped_ || program_.num_updates != 1, "there is no step of the optimizer");
  if (program_.num_updates == 1) check_ends();
  for (const Stage& stage : stages_) {
    if (program_.num_updates > 1 && stage.newest != program_.num_updates) {
      fail(fmt::format("stage {} has {} updates where there should be {}", stage.number, stage.newest,
                       program_.num_updates));
    }
    require(stage.restored < 0, "weights are restored and never used");
    require(std::find(stage.stashed.begin(), stage.stashed.end(), true) == stage.stashed.end(),
            "weights are stashed and never freed");
    require(program_.num_updates == 0 ||
                std::none_of(stage.work.begin(), stage.work.end(),
                             [](const auto& each) { return each.second.forwarded && !each.second.weight_gradient; }),
            "there is a Forward without weight gradients");
  }
}

}  // namespace trireme
