// What a rank does in one step, as plain data: a list of instructions. Checker, printer and runtime read the same list.
//
// A gradient *group* (a bucket) is a range of the flat gradient that is reduced as one; a *slot* is one copy of the
// flat gradient. An instruction with a group may run as soon as its group is full, while the Backward before it is
// still computing earlier layers. That is how communication overlaps with computation.
//
// [Note: Messages]
// Stages are numbered from 0, from the input to the loss, over the whole pipeline; a rank may hold several. Sends and
// receives only *post* a message and do not block: the computation that needs a message waits for it to arrive, and the
// sender keeps the tensor until it has been sent. Between two ranks, messages are received in the order in which they
// are sent, whatever they carry, so any transport works. Peers are offsets along the pipeline axis of the mesh, so all
// replicas of a rank have the same list, except for the numbers of their micro-batches.
//
// [Note: Lanes]
// Stages may have different numbers of replicas. Micro-batches are then divided into *lanes*, as many as the least
// common multiple of those numbers. A rank of a stage with fewer replicas than lanes holds several lanes, and at every
// turn of the schedule it does the work of each, one lane after another. All numbers are therefore the same as with one
// replica per lane, and a message goes to the rank that holds its lane:
//
//   stage 0, two replicas   [lane 0]  [lane 1]         micro-batches 0 1 2 3 in lane 0, 4 5 6 7 in lane 1
//                               \       /              rank 0: F0 F1 …   rank 1: F4 F5 …
//   stage 1, one             [lanes 0 and 1]           rank 2: F0 F4 B0 B4 F1 F5 …
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/program/reduction_tree.h"

namespace trireme {

/// Each comment lists the fields that the instruction uses, then what it does.
enum class OpCode {
  kForward,         ///< stage, micro_batch
  kBackward,        ///< stage, micro_batch, slot, add: gradients of inputs, and of weights → slot
  kBackwardInput,   ///< stage, micro_batch: gradients of inputs only; its kWeightGrad follows later
  kWeightGrad,      ///< stage, micro_batch, slot, add: gradients of weights → slot
  kRecompute,       ///< stage, micro_batch: repeats the forward pass from the saved input
  kSendActivation,  ///< stage, micro_batch, peer: sends the stage's output to the next stage
  kRecvActivation,  ///< stage, micro_batch, peer: receives the stage's input from the previous stage
  kSendGradient,    ///< stage, micro_batch, peer: sends the gradient of the stage's input to the previous stage
  kRecvGradient,    ///< stage, micro_batch, peer: receives the gradient of the stage's output from the next stage
  kAddSlot,         ///< stage, group, slot, from_slot: slot += from_slot
  kPush,            ///< stage, group: sends the partial sums (slots 0 …) to parameter servers
  kAllReduce,       ///< stage, group: sums slots 0 … of all replicas into slot 0 of each
  kReduceScatter,   ///< stage, group, add: the same, but each replica gets only its shard of the sum
  kAllGather,       ///< stage, group: all-gathers the weights' shards for the stage's next pass
  kCombine,         ///< all stages of the rank: combines the replicas' sums by Adasum, or signs of their momenta
  kMeet,            ///< all stages of the rank: averages weights over replicas (local SGD, DiLoCo), if due in this step
  kFree,            ///< stage, micro_batch: frees activations, except the input; or stage, version: stashed weights
  kStashWeights,    ///< stage, version: stashes a copy of the current weights
  kRestoreWeights,  ///< stage, version: the stage's next computation, and only that one, uses the stashed copy
  kSendTiedGradient,  ///< stage (the use), tied, peer: sends the sum of the use's gradients to the owner
  kAddTiedGradient,   ///< stage (the owner), tied, peer: adds the use's sum to the owner's
  kNorm,              ///< slot 0 of all stages: norm over the model's ranks, which decides on skipping and clipping
  kOptimizerStep,     ///< updates weights from slot 0: of one stage (to `version`), or of all stages of the rank
  kPull,              ///< all stages of the rank: fetches new weights from parameter servers
  kSendTiedWeight,    ///< stage (the owner), tied, peer: sends the weight to the use
  kTakeTiedWeight,    ///< stage (the use), tied, peer: refreshes the copy from the owner
};

struct Instruction {
  OpCode op = OpCode::kForward;
  int stage = -1;        ///< index in the whole pipeline, held by this rank; -1: the rank holds the whole model
  int micro_batch = -1;  ///< index in the whole step, counted over all replicas; -1: none
  int slot = -1;         ///< -1: none
  int from_slot = -1;    ///< slot to add to `slot`; -1: none
  bool add = false;      ///< add to the slot (or shard) instead of setting it
  int group = -1;        ///< index in the stage; -1: all groups
  int tied = -1;         ///< index in UpdateShape::tied; -1: none
  int version = -1;      ///< version of the stage's weights: number of updates in this program before it; -1: none
  int peer = 0;          ///< messages: pipeline coordinate of the other rank minus this rank's

  bool operator==(const Instruction&) const = default;
  std::string to_string() const;
  /// Index into a list of all stages; 0 if the rank holds the whole model.
  size_t stage_index() const { return stage < 0 ? 0 : static_cast<size_t>(stage); }
};

/// kForward, kBackward, kBackwardInput, kWeightGrad, kRecompute.
constexpr bool is_compute(OpCode op) { return op <= OpCode::kRecompute; }
/// kBackward, kWeightGrad: these fill a slot.
constexpr bool makes_weight_gradient(OpCode op) { return op == OpCode::kBackward || op == OpCode::kWeightGrad; }
/// kBackward, kBackwardInput: these make the gradient for the previous stage.
constexpr bool makes_input_gradient(OpCode op) { return op == OpCode::kBackward || op == OpCode::kBackwardInput; }
constexpr bool is_send(OpCode op) { return op == OpCode::kSendActivation || op == OpCode::kSendGradient; }
constexpr bool is_receive(OpCode op) { return op == OpCode::kRecvActivation || op == OpCode::kRecvGradient; }

/// Operations that all replicas of a rank take part in.
constexpr bool is_collective(OpCode op) { return op >= OpCode::kAllReduce && op <= OpCode::kMeet; }
/// Group instructions that follow the backward pass that fills their group, and overlap with it.
constexpr bool follows_pass(OpCode op) { return op >= OpCode::kAddSlot && op <= OpCode::kReduceScatter; }
constexpr bool receives_tied(OpCode op) { return op == OpCode::kAddTiedGradient || op == OpCode::kTakeTiedWeight; }
constexpr bool is_tied(OpCode op) {
  return receives_tied(op) || op == OpCode::kSendTiedGradient || op == OpCode::kSendTiedWeight;
}

/// The content of a message: the input of a stage, or the gradient of its output. `stage` is the receiving one.
struct PipelineMessage {
  bool is_gradient = false;
  int stage = 0;
  int micro_batch = 0;
  auto operator<=>(const PipelineMessage&) const = default;
  /// "the input of stage 1, micro-batch 0"
  std::string to_string() const;
};
/// The message of a send or a receive.
inline PipelineMessage message_of(const Instruction& instruction) {
  const bool is_gradient = instruction.op == OpCode::kSendGradient || instruction.op == OpCode::kRecvGradient;
  const int to_receiver = !is_send(instruction.op) ? 0 : is_gradient ? -1 : 1;
  return {is_gradient, instruction.stage + to_receiver, instruction.micro_batch};
}

/// What a computation gets from the stage before or after its own, and what it makes for one: the interpreter and the
/// executor both go by it.
struct MessagesOfPass {
  std::optional<PipelineMessage> needs, makes;
};
/// Empty at the ends of the pipeline, for a whole model (stage -1), and for WeightGrad and Recompute.
inline MessagesOfPass messages_of(const Instruction& computation, int num_stages) {
  const int stage = computation.stage, micro_batch = computation.micro_batch;
  const bool is_forward = computation.op == OpCode::kForward;
  if (stage < 0 || (!is_forward && !makes_input_gradient(computation.op))) return {};
  std::optional<PipelineMessage> before, after;
  if (stage > 0) before = {!is_forward, is_forward ? stage : stage - 1, micro_batch};
  if (stage + 1 < num_stages) after = {!is_forward, is_forward ? stage + 1 : stage, micro_batch};
  return is_forward ? MessagesOfPass{before, after} : MessagesOfPass{after, before};
}

/// How the partial sums of all ranks are added up ([Note: Leaves]).
struct CrossRankSum {
  bool direct = true;                 ///< one ordered all-reduce of slot 0
  std::vector<int> partials_of_rank;  ///< otherwise: number of partial sums (slots) of each rank
  std::vector<Addition> additions;    ///< and how they are added; numbered over all ranks
  bool operator==(const CrossRankSum&) const = default;
};

/// What replicas shard instead of each holding a full copy: ZeRO's stages (program/zero.h).
struct ZeroShape {
  int zero = 0;                          ///< ZeRO stage, 0 to 3; 0: off
  std::vector<int> sharded_groups = {};  ///< number of sharded groups per stage, the first ones; empty: all
  bool keep = false;  ///< ZeRO-3 without a pipeline: keep weights from the forward to the backward pass
  /// Reduce-scatter gradients after each micro-batch and accumulate the shards: less memory, but not bit-equal.
  bool each_micro_batch = false;
  bool operator==(const ZeroShape&) const = default;
};

/// How the gradients of replicas become new weights.
enum class GradientExchange : uint8_t {
  kSum,           ///< every replica gets the sum, or with ZeRO its shard of the sum
  kServers,       ///< parameter servers sum the gradients that replicas push, and update
  kAsyncServers,  ///< parameter servers update with one replica's gradients at a time
  kAdasum,        ///< replicas combine their sums by Adasum
  kMomenta,       ///< replicas exchange signs of their momenta (1-bit Adam)
  kLocal,         ///< local SGD: every replica updates with its own sum; weights are averaged periodically
};

/// A weight with two uses ([Note: Tied weights]). Ends are stage indices; -1: the rank holds the whole model.
struct TiedWeight {
  int owner = -1;       ///< stage that updates the weight
  int use = -1;         ///< stage that computes with a copy; its gradients are summed separately
  bool trained = true;  ///< false: no gradients; only the copy is refreshed
  bool operator==(const TiedWeight&) const = default;
};

/// How a step ends (program/update.h).
struct UpdateShape {
  GradientExchange exchange = GradientExchange::kSum;
  bool pushes_one_sum = false;   ///< kServers: a replica adds up its partial sums before it pushes them
  bool norm = false;             ///< compute the norm of all gradients of the update, over all stages
  bool refreshes_first = false;  ///< refresh copies of tied weights before the step, because the owner updates after it
  std::vector<TiedWeight> tied = {};
  /// Each replica adds up its own partial sums before the exchange, outside the tree of leaves.
  bool sums_own() const {
    return exchange != GradientExchange::kSum && (exchange != GradientExchange::kServers || pushes_one_sum);
  }
  /// Replicas push gradients to parameter servers and pull weights from them.
  bool has_servers() const {
    return exchange == GradientExchange::kServers || exchange == GradientExchange::kAsyncServers;
  }
  /// Replicas combine their own sums with each other: the step has a Combine.
  bool combines() const { return exchange == GradientExchange::kAdasum || exchange == GradientExchange::kMomenta; }
  bool operator==(const UpdateShape&) const = default;
};

struct Program {
  std::vector<Instruction> instructions;
  int num_micro_batches = 0;  ///< total of the step, over all replicas
  int num_groups = 0;         ///< gradient groups of the whole model; in a pipeline use groups_of_stage
  int num_slots = 0;          ///< gradient slots of each stage
  int num_ranks = 1;          ///< replicas of this rank, which sum their gradients
  CrossRankSum across;
  ZeroShape zero;
  UpdateShape update;

  // For pipelines.
  int pipeline_rank = 0;
  int num_pipeline_ranks = 1;
  int num_updates = 1;               ///< weight updates, each over the same number of micro-batches; 0: forward only
  std::vector<int> rank_of_stage;    ///< pipeline rank of each stage; empty: no pipeline
  std::vector<int> groups_of_stage;  ///< number of gradient groups of each stage
  /// Replicas of each pipeline rank, if these differ ([Note: Lanes]); empty: num_ranks each.
  std::vector<int> replicas_of_rank = {};

  bool is_pipeline() const { return !rank_of_stage.empty(); }
  int num_stages() const { return is_pipeline() ? static_cast<int>(rank_of_stage.size()) : 1; }
  /// The stages of this rank, in order; {-1} without a pipeline.
  std::vector<int> own_stages() const;
  /// The pipeline rank that holds a stage; -1 for a stage past either end, and without a pipeline.
  int owner_of(int stage) const;
  /// Whether another pipeline rank holds the stage.
  bool is_elsewhere(int stage) const { return owner_of(stage) >= 0 && owner_of(stage) != pipeline_rank; }
  /// Index just past the run of group instructions that starts at `at`: the ones that may overlap with the pass before.
  size_t end_of_group_instructions(size_t at) const;
  int groups_of(int stage) const { return stage < 0 ? num_groups : groups_of_stage[static_cast<size_t>(stage)]; }
  /// Number of sharded groups of a stage; they come first.
  int sharded_groups_of(int stage) const;

  int replicas_of(int rank) const {
    return replicas_of_rank.empty() ? num_ranks : replicas_of_rank[static_cast<size_t>(rank)];
  }
  /// [Note: Lanes]: the number of replicas, if all ranks have the same number.
  int num_lanes() const;
  /// The replica of a pipeline rank that holds a lane, or a micro-batch.
  int replica_of_lane(int lane, int rank) const { return lane / (num_lanes() / replicas_of(rank)); }
  int replica_with(int micro_batch, int rank) const;

  /// One instruction per line.
  std::string to_string() const;
  bool operator==(const Program&) const = default;
};

}  // namespace trireme
