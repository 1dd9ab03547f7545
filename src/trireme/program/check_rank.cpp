#include "trireme/program/check_rank.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/index.h"

namespace trireme {
namespace {

/// Says already which rank and instruction it is about.
class RankError : public Error {
 public:
  using Error::Error;
};

}  // namespace

ProgramPlaces::ProgramPlaces(const Program& any) {
  const auto add = [this](int rank, int replica) {
    rank_of_.push_back(rank);
    replica_of_.push_back(replica);
  };
  if (any.replicas_of_rank.empty()) {
    for (int replica = 0; replica < any.num_ranks; ++replica) {
      for (int rank = 0; rank < any.num_pipeline_ranks; ++rank) add(rank, replica);
    }
    return;
  }
  for (int rank = 0; rank < any.num_pipeline_ranks; ++rank) {
    for (int replica = 0; replica < any.replicas_of(rank); ++replica) add(rank, replica);
  }
}

size_t ProgramPlaces::number_of(int rank, int replica) const {
  size_t number = 0;
  while (rank_of_[number] != rank || replica_of_[number] != replica) ++number;
  return number;
}

RankCheck::RankCheck(const Program& program, size_t number, const ProgramPlaces& places, const SumTree& tree,
                     Channels& channels, Replicas& replicas, const CheckOptions& options)
    : program_(program),
      places_(places),
      rank_(static_cast<int>(number)),
      replica_(places.replica_of(number)),
      tree_(tree),
      channels_(channels),
      replicas_(replicas),
      options_(options) {
  for (const int number : program.own_stages()) {
    Stage& stage = stages_.emplace_back();
    const auto groups = at(program.groups_of(number));
    stage.number = number;
    stage.work.resize(at(program.num_micro_batches));
    stage.slots.assign(at(program.num_slots), std::vector<PartialSum>(groups));
    stage.reduced.resize(groups);
    stage.stashed.resize(at(program.num_updates) + 1);
  }
  staleness_.resize(stages_.size());
}

void RankCheck::fail(const std::string& cause) const {
  throw RankError(fmt::format(
      "program of rank {}{}: {}", rank_,
      is_done() ? "" : fmt::format(", instruction {}, {}", at_, program_.instructions[at_].to_string()), cause));
}

bool RankCheck::advance() {
  const size_t before = at_;
  try {
    while (!is_done() && step(program_.instructions[at_])) ++at_;
  } catch (const RankError&) {
    throw;
  } catch (const Error& error) {
    fail(error.what());  // found where ranks meet: it becomes this rank's
  }
  return at_ > before;
}

std::string RankCheck::waits_for() const {
  return fmt::format("rank {} waits at instruction {}, {}, for {}", rank_, at_, program_.instructions[at_].to_string(),
                     waiting_for_);
}

int RankCheck::holder(int pipeline_rank, int micro_batch) const {
  const int replica = program_.replicas_of_rank.empty() ? replica_ : program_.replica_with(micro_batch, pipeline_rank);
  return static_cast<int>(places_.number_of(pipeline_rank, replica));
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
  return stage.work[at(instruction.micro_batch)];
}

bool RankCheck::has_arrived(const Instruction& instruction, bool gradient, bool posted, bool local_is_there) {
  const int source = instruction.stage + (gradient ? 1 : -1);
  if (program_.owner_of(source) < 0) return true;  // the ends of the pipeline need nothing
  if (!program_.is_elsewhere(source)) {
    require(local_is_there, gradient ? "the next stage, on the same rank, has not made its gradient"
                                     : "the stage before it, on the same rank, has not made its input");
    return true;
  }
  require(posted, gradient ? "its RecvGradient is missing" : "its RecvActivation is missing");
  const PipelineMessage message{gradient, instruction.stage, instruction.micro_batch};
  const int from = holder(program_.owner_of(source), instruction.micro_batch);
  const std::vector<PipelineMessage>& sent = channels_.between(from, rank_).sent;
  if (std::find(sent.rbegin(), sent.rend(), message) != sent.rend()) return true;
  waiting_for_ = fmt::format("{}, which rank {} has not sent", message.to_string(), from);
  return false;
}

int RankCheck::use_weights(Stage& stage) {
  const int version = stage.restored >= 0 ? stage.restored : stage.newest;
  stage.restored = -1;
  return version;
}

bool RankCheck::step(const Instruction& instruction) {
  require(!stepped_ || instruction.op == OpCode::kAllGather, "it comes after the optimizer's step");
  require(std::max(instruction.slot, instruction.from_slot) < program_.num_slots, "there is no such slot");
  switch (instruction.op) {
    case OpCode::kForward:
      return forward(instruction);
    case OpCode::kBackward:
    case OpCode::kBackwardInput:
      return backward(instruction);
    case OpCode::kWeightGrad:
      weight_gradient(instruction);
      return true;
    case OpCode::kRecompute:
      free_or_recompute(instruction);
      return true;
    case OpCode::kFree:
      if (instruction.version >= 0) {
        change_versions(instruction);
      } else {
        free_or_recompute(instruction);
      }
      return true;
    case OpCode::kSendActivation:
    case OpCode::kSendGradient:
      return send(instruction);
    case OpCode::kRecvActivation:
    case OpCode::kRecvGradient:
      receive(instruction);
      return true;
    case OpCode::kAddSlot:
      add_slot(instruction);
      return true;
    case OpCode::kAllReduce:
    case OpCode::kReduceScatter:
    case OpCode::kAllGather:
      collective(instruction);
      return true;
    case OpCode::kStashWeights:
    case OpCode::kRestoreWeights:
      change_versions(instruction);
      return true;
    case OpCode::kOptimizerStep:
      return optimizer_step(instruction);
  }
  fail("there is no such instruction");
}

bool RankCheck::forward(const Instruction& instruction) {
  Work& work = work_of(instruction);
  require(!work.forwarded, "it is done twice");
  Instruction before = instruction;
  before.stage -= 1;
  const bool local = program_.owner_of(before.stage) >= 0 && !program_.is_elsewhere(before.stage);
  if (!has_arrived(instruction, false, work.posted_activation, local && work_of(before).forwarded)) return false;
  work.forwarded = true;
  work.version = use_weights(stage_of(instruction));
  return true;
}

bool RankCheck::backward(const Instruction& instruction) {
  Work& work = work_of(instruction);
  require(work.forwarded, "its Forward is missing");
  require(!work.input_gradient, "it is done twice");
  require(!work.freed, "its activations have been freed: a Recompute is missing");
  Instruction next = instruction;
  next.stage += 1;
  const bool local = program_.owner_of(next.stage) >= 0 && !program_.is_elsewhere(next.stage);
  if (!has_arrived(instruction, true, work.posted_gradient, local && work_of(next).input_gradient)) return false;
  const int version = use_weights(stage_of(instruction));
  if (version != work.version) {
    fail(fmt::format("it uses version {} of the weights, its Forward version {}", version, work.version));
  }
  work.input_gradient = true;
  if (instruction.op == OpCode::kBackward) weight_gradient(instruction);
  return true;
}

void RankCheck::weight_gradient(const Instruction& instruction) {
  Work& work = work_of(instruction);
  Stage& stage = stage_of(instruction);
  require(work.input_gradient, "its BackwardInput is missing");
  require(!work.weight_gradient, "it is done twice");
  require(instruction.slot >= 0, "it names no slot");
  work.weight_gradient = true;
  const PartialSum own{instruction.micro_batch, instruction.micro_batch + 1};
  std::vector<PartialSum>& sums = stage.slots[at(instruction.slot)];
  for (size_t group = 0; group < sums.size(); ++group) {
    require(!stage.reduced[group], "a group that it adds to has been reduced already");
    if (!instruction.add) {
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
  if (!frees && use_weights(stage_of(instruction)) != work.version) fail("it uses other weights than its Forward");
}

bool RankCheck::send(const Instruction& instruction) {
  Work& work = work_of(instruction);
  const bool gradient = instruction.op == OpCode::kSendGradient;
  const PipelineMessage message = message_of(instruction);
  require(program_.is_elsewhere(message.stage), "no other rank needs it");
  require(program_.owner_of(message.stage) == program_.pipeline_rank + instruction.peer,
          "it goes to a rank that does not hold that stage");
  require(gradient ? work.input_gradient : work.forwarded && !work.freed, "what it sends is not there");
  bool& sent = gradient ? work.sent_gradient : work.sent_activation;
  require(!sent, "it is sent twice");
  const int to = holder(program_.pipeline_rank + instruction.peer, instruction.micro_batch);
  const Channel& channel = channels_.between(rank_, to);
  if (channel.sent.size() >= channel.posted.size() + at(options_.sends_under_way)) {
    waiting_for_ = fmt::format("rank {} to receive what was sent before it", to);
    return false;
  }
  sent = true;
  channels_.send(rank_, to, message);
  return true;
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
  channels_.post(holder(program_.owner_of(source), instruction.micro_batch), rank_, message_of(instruction));
}

void RankCheck::finish() {
  require(stepped_ || program_.num_updates > 1, "there is no step of the optimizer");
  for (const Stage& stage : stages_) {
    if (program_.num_updates > 1 && stage.newest != program_.num_updates) {
      fail(fmt::format("stage {} has {} updates where there should be {}", stage.number, stage.newest,
                       program_.num_updates));
    }
    require(stage.restored < 0, "weights are restored and never used");
    require(std::find(stage.stashed.begin(), stage.stashed.end(), true) == stage.stashed.end(),
            "weights are stashed and never freed");
    require(std::none_of(stage.work.begin(), stage.work.end(),
                         [](const Work& work) { return work.forwarded && !work.weight_gradient; }),
            "there is a Forward without weight gradients");
  }
}

}  // namespace trireme
