// Sharding rules of operators, and the choice of a strategy for given inputs along one axis of a mesh.
//
// A rule names dimensions by labels, as einsum does: `mm` is "mk,kn->mn" with k summed. Sharding a label shards every
// tensor that has it; an output without it becomes a partial sum. Only shardings that some input already has are
// considered: users of a tensor follow its placement, and nothing is sharded unexpectedly. Pure values: mesh tensors
// execute the chosen strategy, the planner prices it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "trireme/layout/placement.h"

namespace trireme {

struct TensorArgument {
  int index = -1;  ///< index in OpCall::tensors; -1: not given
};
struct TensorListArgument {
  std::vector<int> indices;
};
using Argument = std::variant<std::monostate, TensorArgument, TensorListArgument, int64_t, double, bool,
                              std::vector<int64_t>, std::string>;

/// An operator call: arguments in the order of its schema, tensors by their global sizes.
struct OpCall {
  std::string name;  ///< name with the overload: "aten::add.Tensor"
  std::vector<Argument> arguments;
  std::vector<std::vector<int64_t>> tensors;  ///< global sizes, in the order of the arguments
  std::vector<bool> masks;                    ///< which of the tensors are boolean

  /// Sizes of a tensor argument; empty if it is not given.
  const std::vector<int64_t>& sizes(size_t argument) const;
  int index(size_t argument) const;  ///< index in `tensors`, or -1
  std::vector<int64_t> integers(size_t argument) const;
  int64_t integer(size_t argument, int64_t otherwise) const;
  bool flag(size_t argument, bool otherwise = false) const;
  bool is_given(size_t argument) const { return argument < arguments.size() && arguments[argument].index() != 0; }
};

/// How an operator computes its local part.
enum class Execution : uint8_t {
  kPlain,               ///< the operator itself on local tensors
  kMean,                ///< the local mean, weighted by the fraction of elements
  kEmbedding,           ///< rows held by other ranks give zeros
  kSoftmax,             ///< softmax and log-softmax, forward and backward, along a sharded dimension
  kNegativeLikelihood,  ///< nll_loss with sharded classes, forward and backward
  kVectorNorm,          ///< local norms, combined over ranks
  kReshape,             ///< reshape to the local sizes of the result, whatever sizes were requested
  kOnce,                ///< only one rank of a partial sum adds the constant
  kEmpty,               ///< uninitialised tensor of the local sizes
  kRandom,              ///< draws all numbers and keeps the local ones, so they are the same as without a mesh
};

using Labels = std::vector<int>;  ///< one per dimension; kFixed is never sharded
constexpr int kFixed = -1;

/// A sharded dimension of an output, with its global extent.
struct Cut {
  Placement placement;
  int64_t extent = 0;
};

/// How a sharding of the first tensor maps to the outputs.
struct Mapped {
  std::vector<Cut> outputs;    ///< one for all outputs, or one per output
  std::vector<int> divided{};  ///< arguments that count elements along the sharded dimension: divided by the axis size
};

struct OpRule {
  std::vector<Labels> inputs;   ///< one per tensor of the call
  std::vector<Labels> outputs;  ///< one per tensor result
  std::vector<int> reduced;     ///< labels that may be sharded although an output lacks them
  PartialOp reduction = PartialOp::kSum;
  std::vector<int> addends;              ///< inputs that are added once: on one rank if the outputs are partial
  std::vector<std::vector<int>> linear;  ///< if exactly these inputs are partial sums, so are the outputs
  Execution linear_execution = Execution::kPlain;
  std::vector<std::pair<int, Execution>> special;  ///< labels whose sharding needs another execution
  std::vector<std::pair<int, int>> whole;   ///< label, output: computed without tensors with the label, so not partial
  std::vector<std::pair<int, int>> counts;  ///< argument, label: an integer that is the label's extent, made local
  std::vector<int> unread;   ///< inputs whose values are not read; they may stay partial or sharded along a fixed dim
  bool never_empty = false;  ///< the operator rejects tensors without elements
  /// A label whose extents differ by integer factors (heads of queries and keys): sharded evenly everywhere, or not at
  /// all. Output i has the extent of input `like[i]`.
  int proportional = kFixed;
  std::vector<int> like{};
  /// Used instead of labels by operators that follow their first tensor: maps its sharding to the outputs. Partial sums
  /// pass through if `keeps_partial`.
  std::function<std::optional<Mapped>(const Placement&, int axis_size)> map;
  bool keeps_partial = true;
  int sizes_argument = -1;                  ///< an int[] argument with the first output's sizes, to be made local
  std::vector<int64_t> sizes{};             ///< the sizes, if the argument leaves some open or is missing
  Execution execution = Execution::kPlain;  ///< used whatever is sharded
};

/// The rule of an operator for a call; nullopt if there is none for the operator, or none for such a call.
std::optional<OpRule> find_rule(const OpCall& call);
bool has_rule(std::string_view name);
/// All operators that have a rule, in alphabetical order.
std::vector<std::string> covered_operators();

/// Placements along one axis.
struct Strategy {
  std::vector<Placement> inputs;
  std::vector<Cut> outputs;
  Execution execution = Execution::kPlain;
  std::vector<int> divided{};  ///< as in Mapped
  int label = kFixed;          ///< the label that is sharded
  double cost = 0;             ///< cost of moving the inputs
};

/// What a choice depends on: placements of the call's tensors along the axis, and the elements of each per rank (other
/// axes may already shard it). It must be the same on all ranks, or they would choose differently.
struct AxisState {
  int axis_size = 1;
  std::vector<Placement> current;
  std::vector<double> local_elements;
  std::vector<int> written;                     ///< tensors that the operator changes in place; their placement stays
  std::vector<int> cut_labels;                  ///< labels sharded by earlier axes
  std::vector<std::pair<int, int>> returned{};  ///< result, and the tensor that it aliases
};

/// The cheapest strategy, the first among equals; nullopt if an operand that is written in place would have to move.
std::optional<Strategy> choose_strategy(const OpRule& rule, const OpCall& call, const AxisState& state);

}  // namespace trireme
