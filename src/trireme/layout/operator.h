// What an operator does to layouts: its rule, and the choice of a strategy for given inputs along one axis of a mesh.
//
// A rule names dimensions by labels, as einsum does: `mm` is "mk,kn->mn" with k summed. Cutting a label cuts every
// tensor that has it; an output without it becomes a partial sum. Only cuts that some input already has are considered:
// what a tensor was given to, its users follow, and nothing is cut by surprise.
// Pure values: mesh tensors execute what is chosen here, the planner prices it.
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
  int index = -1;  ///< in OpCall::tensors; -1: not given
};
struct TensorListArgument {
  std::vector<int> indices;
};
using Argument = std::variant<std::monostate, TensorArgument, TensorListArgument, int64_t, double, bool,
                              std::vector<int64_t>, std::string>;

/// A call of an operator: arguments in the order of its schema, tensors by their global sizes.
struct OpCall {
  std::string name;  ///< with the overload: "aten::add.Tensor"
  std::vector<Argument> arguments;
  std::vector<std::vector<int64_t>> tensors;  ///< in the order of the arguments
  std::vector<bool> masks;                    ///< which of them hold booleans

  /// Of a tensor argument; empty where it is not given.
  const std::vector<int64_t>& sizes(size_t argument) const;
  int index(size_t argument) const;  ///< in `tensors`, or -1
  std::vector<int64_t> integers(size_t argument) const;
  int64_t integer(size_t argument, int64_t otherwise) const;
  bool flag(size_t argument, bool otherwise = false) const;
  bool is_given(size_t argument) const { return argument < arguments.size() && arguments[argument].index() != 0; }
};

/// How the local part of an operator is computed.
enum class Execution : uint8_t {
  kPlain,               ///< the operator itself on local tensors
  kMean,                ///< the local mean, weighted by the fraction of elements
  kEmbedding,           ///< rows of other ranks give zeros
  kSoftmax,             ///< softmax and log-softmax, forward and backward, with the dimension cut
  kNegativeLikelihood,  ///< nll_loss with the classes cut, forward and backward
  kVectorNorm,          ///< local norms, combined
  kReshape,             ///< a reshape to the local sizes of the result, whatever was asked for
  kOnce,                ///< a constant that counts on one rank of a sum only
  kEmpty,               ///< a tensor of the local sizes, with whatever is there
  kRandom,              ///< all numbers are drawn, the local ones kept: the same as without a mesh
};

using Labels = std::vector<int>;  ///< one a dimension; kFixed is never cut
constexpr int kFixed = -1;

/// A cut dimension of an output, with its global extent.
struct Cut {
  Placement placement;
  int64_t extent = 0;
};

/// Where a cut of the first tensor leads.
struct Mapped {
  std::vector<Cut> outputs;    ///< one, for all outputs, or one each
  std::vector<int> divided{};  ///< arguments that count elements along the cut: local ones are so many times fewer
};

struct OpRule {
  std::vector<Labels> inputs;   ///< one a tensor of the call
  std::vector<Labels> outputs;  ///< one a tensor result
  std::vector<int> reduced;     ///< labels that may be cut although an output lacks them
  PartialOp reduction = PartialOp::kSum;
  std::vector<int> addends;              ///< inputs that count once: spread where the outputs are partial
  std::vector<std::vector<int>> linear;  ///< if exactly these inputs are partial sums, so are the outputs
  Execution linear_execution = Execution::kPlain;
  std::vector<std::pair<int, Execution>> special;  ///< labels that need another execution when cut
  std::vector<std::pair<int, int>> whole;  ///< label, output: computed from tensors that lack the label, so not partial
  std::vector<std::pair<int, int>> counts;  ///< argument, label: an integer that is the label's extent, made local
  std::vector<int>
      unread;  ///< inputs whose values do not matter: partial ones stay, and those cut along a fixed dimension
  bool never_empty = false;  ///< the operator refuses tensors without elements
  /// A label whose extents differ by whole factors (heads of queries and keys): cut evenly everywhere, or not at all.
  /// Output i is as long as input `like[i]`.
  int proportional = kFixed;
  std::vector<int> like{};
  /// Instead of labels, for operators that follow their first tensor: where its cut goes. Partials pass if
  /// `keeps_partial`.
  std::function<std::optional<Mapped>(const Placement&, int axis_size)> map;
  bool keeps_partial = true;
  int sizes_argument = -1;                  ///< an int[] of the first output's sizes, to be replaced by local ones
  std::vector<int64_t> sizes{};             ///< what they are, where the argument leaves some open or is missing
  Execution execution = Execution::kPlain;  ///< whatever is cut
};

/// The rule of an operator for a call; none: nobody has written one, or not for such a call.
std::optional<OpRule> find_rule(const OpCall& call);
bool has_rule(std::string_view name);
/// All operators that have a rule, in order.
std::vector<std::string> covered_operators();

/// Placements along one axis.
struct Strategy {
  std::vector<Placement> inputs;
  std::vector<Cut> outputs;
  Execution execution = Execution::kPlain;
  std::vector<int> divided{};  ///< as in Mapped
  int label = kFixed;          ///< that is cut
  double cost = 0;             ///< of moving the inputs
};

/// What a choice is made from: placements of the call's tensors along the axis, and how many elements a rank holds of
/// each (which other axes may have cut, too). All the same on all ranks, or they would choose differently.
struct AxisState {
  int axis_size = 1;
  std::vector<Placement> current;
  std::vector<double> local_elements;
  std::vector<int> written;                     ///< tensors that the operator changes in place: they stay as they are
  std::vector<int> cut_labels;                  ///< by earlier axes
  std::vector<std::pair<int, int>> returned{};  ///< result, tensor that it is
};

/// The cheapest strategy, the first among equals; none: an operand that is written in place stands in the way.
std::optional<Strategy> choose_strategy(const OpRule& rule, const OpCall& call, const AxisState& state);

}  // namespace trireme
