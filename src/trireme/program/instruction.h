// What a rank does in one step, as plain data: a list of instructions. Checker, printer and runtime read the same list.
//
// A gradient *group* is a range of the flat gradient that travels together (a bucket); a *slot* is one copy of the flat
// gradient. An instruction with a group may run as soon as its group is ready: while the Backward before it is still
// under way, once that has filled the group. That is how communication hides behind computation.
//
// [Note: Messages]
// A pipeline's stages are numbered through, from the input to the loss; a rank may hold several. Send and receive only
// *post* a message, and neither waits for it: the computation that needs a message waits until it is there, and what is
// sent stays with the sender until it has gone. Messages from one rank to another are received in the order in which
// they are sent, whatever they carry, so that any transport will do. Peers are given as offsets along the pipeline axis
// of the mesh; so the list of one rank serves all its replicas, but for the numbers of their micro-batches.
//
// [Note: Lanes]
// Stages may have different numbers of replicas. Then micro-batches are numbered as for the least common multiple of
// them, so many *lanes*; a rank with fewer replicas beside it has several lanes, and does what each would do, one lane
// after the other, at every turn of the schedule. So every number comes about as it would with as many replicas as
// lanes, and a message goes to whoever has its lane:
//
//   stage 0, two replicas   [lane 0]  [lane 1]         micro-batches 0 1 2 3 in lane 0, 4 5 6 7 in lane 1
//                               \       /              rank 0: F0 F1 …   rank 1: F4 F5 …
//   stage 1, one             [lanes 0 and 1]           rank 2: F0 F4 B0 B4 F1 F5 …
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/program/reduction_tree.h"

namespace trireme {

enum class OpCode {
  kForward,         ///< stage, micro_batch
  kBackward,        ///< stage, micro_batch: gradients of inputs, and of weights → slot, set or added
  kBackwardInput,   ///< stage, micro_batch: gradients of inputs alone; its kWeightGrad follows
  kWeightGrad,      ///< stage, micro_batch: gradients of weights → slot, set or added
  kRecompute,       ///< stage, micro_batch: the forward pass again, from the input that was kept
  kSendActivation,  ///< stage, micro_batch: the stage's output goes to the next stage, on rank + peer
  kRecvActivation,  ///< stage, micro_batch: the stage's input comes from the stage before it, on rank + peer
  kSendGradient,    ///< stage, micro_batch: the gradient of the stage's input goes to the stage before it
  kRecvGradient,    ///< stage, micro_batch: the gradient of the stage's output comes from the next stage
  kAddSlot,         ///< stage, group: slot += from_slot
  kPush,            ///< stage, group: slots 0 … go to parameter servers
  kAllReduce,       ///< stage, group: slots 0 … of all replicas → slot 0 of all
  kReduceScatter,   ///< the same, each replica getting its shard, set or added
  kAllGather,       ///< stage, group: the next pass of the stage needs the replicas' shards of the weights
  kCombine,         ///< all stages of the rank: replicas combine their own sums, by Adasum or as signs of momenta
  kMeet,            ///< all stages of the rank: replicas that update alone average their weights, where it is time to
  kFree,            ///< stage, micro_batch: activations but for the input; or stage, version: stashed weights
  kStashWeights,    ///< stage, version: keeps a copy of the weights as they are
  kRestoreWeights,  ///< stage, version: the stage's next computation uses that copy; the one after it, the newest again
  kSendTiedGradient,  ///< stage (the use), tied: the sum of the use's gradients goes to the owner, on rank + peer
  kAddTiedGradient,   ///< stage (the owner), tied: the owner's sum += that of the use, on rank + peer
  kNorm,              ///< slot 0 of all stages, on all ranks of the model: the norm, which decides about the update
  kOptimizerStep,     ///< slot 0, all groups: of one stage (making `version`), or of all stages of the rank
  kPull,              ///< all stages of the rank: new weights come from parameter servers
  kSendTiedWeight,    ///< stage (the owner), tied: the weight goes to the use, on rank + peer
  kTakeTiedWeight,    ///< stage (the use), tied: the copy is refreshed from the owner, on rank + peer
};

struct Instruction {
  OpCode op = OpCode::kForward;
  int stage = -1;        ///< of the whole pipeline, a stage of this rank; -1: the rank holds the whole model
  int micro_batch = -1;  ///< of the whole step, counted over all replicas
  int slot = -1;
  int from_slot = -1;
  bool add = false;  ///< adds to the slot instead of setting it
  int group = -1;    ///< of the stage; -1: all groups
  int tied = -1;     ///< a tied weight of the program
  int version = -1;  ///< of the stage's weights: how many updates they have had in this program
  int peer = 0;      ///< of a message: the other rank's pipeline coordinate less this one's

  bool operator==(const Instruction&) const = default;
  std::string to_string() const;
  /// Index of its stage in a list of all stages.
  size_t stage_index() const { return stage < 0 ? 0 : static_cast<size_t>(stage); }
};

/// Forward, Backward, BackwardInput, WeightGrad, Recompute.
constexpr bool is_compute(OpCode op) { return op <= OpCode::kRecompute; }
/// kBackward, kWeightGrad: what fills a slot.
constexpr bool makes_weight_gradient(OpCode op) { return op == OpCode::kBackward || op == OpCode::kWeightGrad; }
/// kBackward, kBackwardInput: what makes the gradient for the stage before.
constexpr bool makes_input_gradient(OpCode op) { return op == OpCode::kBackward || op == OpCode::kBackwardInput; }
constexpr bool is_send(OpCode op) { return op == OpCode::kSendActivation || op == OpCode::kSendGradient; }
constexpr bool is_receive(OpCode op) { return op == OpCode::kRecvActivation || op == OpCode::kRecvGradient; }

/// What replicas do together.
constexpr bool is_collective(OpCode op) { return op >= OpCode::kAllReduce && op <= OpCode::kMeet; }
/// Follows the backward pass that fills its group, and runs while that goes on.
constexpr bool follows_pass(OpCode op) { return op >= OpCode::kAddSlot && op <= OpCode::kReduceScatter; }
constexpr bool receives_tied(OpCode op) { return op == OpCode::kAddTiedGradient || op == OpCode::kTakeTiedWeight; }
constexpr bool is_tied(OpCode op) {
  return receives_tied(op) || op == OpCode::kSendTiedGradient || op == OpCode::kSendTiedWeight;
}

/// What is sent: the input of a stage, or the gradient of its output. The stage is the one that receives it.
struct PipelineMessage {
  bool is_gradient = false;
  int stage = 0;
  int micro_batch = 0;
  auto operator<=>(const PipelineMessage&) const = default;
  /// "the input of stage 1, micro-batch 0"
  std::string to_string() const;
};
/// Of a send or a receive.
inline PipelineMessage message_of(const Instruction& instruction) {
  const bool is_gradient = instruction.op == OpCode::kSendGradient || instruction.op == OpCode::kRecvGradient;
  const int to_receiver = !is_send(instruction.op) ? 0 : is_gradient ? -1 : 1;
  return {is_gradient, instruction.stage + to_receiver, instruction.micro_batch};
}

/// How the partial sums of all ranks become one ([Note: Leaves]).
struct CrossRankSum {
  bool direct = true;                 ///< an ordered all-reduce of slot 0
  std::vector<int> partials_of_rank;  ///< otherwise: how many slots each rank brings, rank by rank
  std::vector<Addition> additions;    ///< and how they are summed, numbered through all ranks
  bool operator==(const CrossRankSum&) const = default;
};

/// What is sharded over replicas, each of which would otherwise hold it whole: ZeRO's stages (program/zero.h).
struct ZeroShape {
  int zero = 0;                          ///< 0 … 3
  std::vector<int> sharded_groups = {};  ///< of each stage, the first so many groups; empty: all
  bool keep = false;                     ///< 3, without a pipeline: weights stay from the forward to the backward pass
  /// Gradients of each micro-batch are scattered at once and summed as parts: less memory, other bits.
  bool each_micro_batch = false;
  bool operator==(const ZeroShape&) const = default;
};

/// How the gradients of replicas become new weights.
enum class GradientExchange : uint8_t {
  kSum,           ///< every replica gets the sum, or its shard of it
  kServers,       ///< parameter servers sum what replicas push, and update
  kAsyncServers,  ///< parameter servers update with the gradients of one replica at a time
  kAdasum,        ///< replicas combine their own sums by Adasum
  kMomenta,       ///< replicas exchange signs of their momenta (1-bit Adam)
  kLocal,         ///< every replica updates with its own sum, and now and then they average their weights
};

/// A weight with two uses ([Note: Tied weights]); numbers of stages.
struct TiedWeight {
  int owner = -1;       ///< updates it
  int use = -1;         ///< computes with it, too; its gradients are summed apart
  bool trained = true;  ///< false: it has no gradients, and its copy follows it alone
  bool operator==(const TiedWeight&) const = default;
};

/// How a step ends (program/update.h).
struct UpdateShape {
  GradientExchange exchange = GradientExchange::kSum;
  bool pushes_one_sum = false;   ///< kServers: a replica adds its partial sums before it pushes
  bool norm = false;             ///< of all gradients of an update, over all stages
  bool refreshes_first = false;  ///< copies of tied weights are refreshed before the step, as their owner updates later
  std::vector<TiedWeight> tied = {};
  /// Replicas' own sums are added up before anything leaves them, outside of the tree of leaves.
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
  int num_micro_batches = 0;  ///< of the whole step
  int num_groups = 0;         ///< of the whole model; of a pipeline, see groups_of_stage
  int num_slots = 0;          ///< of each stage
  int num_ranks = 1;          ///< replicas that sum their gradients
  CrossRankSum across;
  ZeroShape zero;
  UpdateShape update;

  // Of a pipeline.
  int pipeline_rank = 0;
  int num_pipeline_ranks = 1;
  int num_updates = 1;               ///< of the weights, each over equally many micro-batches; 0: forward passes alone
  std::vector<int> rank_of_stage;    ///< pipeline ranks; empty: no pipeline
  std::vector<int> groups_of_stage;  ///< how many
  /// Of the ranks of the pipeline, where they differ ([Note: Lanes]); empty: num_ranks of each.
  std::vector<int> replicas_of_rank = {};

  bool is_pipeline() const { return !rank_of_stage.empty(); }
  int num_stages() const { return is_pipeline() ? static_cast<int>(rank_of_stage.size()) : 1; }
  /// The stages of this rank, in order; {-1} where it holds the whole model.
  std::vector<int> own_stages() const;
  /// The pipeline rank that holds a stage; -1 beyond the ends of the pipeline, and where there is none.
  int owner_of(int stage) const;
  /// On another rank of the pipeline.
  bool is_elsewhere(int stage) const { return owner_of(stage) >= 0 && owner_of(stage) != pipeline_rank; }
  /// Behind the instructions with a group that begin at `at`: those that may run during the pass before them.
  size_t end_of_group_instructions(size_t at) const;
  int groups_of(int stage) const { return stage < 0 ? num_groups : groups_of_stage[static_cast<size_t>(stage)]; }
  /// The number of sharded groups of a stage, which are the first.
  int sharded_groups_of(int stage) const;

  int replicas_of(int rank) const {
    return replicas_of_rank.empty() ? num_ranks : replicas_of_rank[static_cast<size_t>(rank)];
  }
  /// [Note: Lanes]: as many as replicas where these are alike.
  int num_lanes() const;
  /// Which replica of a rank of the pipeline has a lane, and a micro-batch.
  int replica_of_lane(int lane, int rank) const { return lane / (num_lanes() / replicas_of(rank)); }
  int replica_with(int micro_batch, int rank) const;

  /// One instruction a line.
  std::string to_string() const;
  bool operator==(const Program&) const = default;
};

}  // namespace trireme
