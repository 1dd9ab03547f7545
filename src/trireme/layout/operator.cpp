#include "trireme/layout/operator.h"

#include <algorithm>

#include "trireme/layout/redistribution.h"

namespace trireme {
namespace {

bool has(const std::vector<int>& list, int value) { return std::find(list.begin(), list.end(), value) != list.end(); }

int dim_of(const Labels& labels, int label) {
  const auto at = std::find(labels.begin(), labels.end(), label);
  return at == labels.end() ? -1 : static_cast<int>(at - labels.begin());
}

class Chooser {
 public:
  Chooser(const OpRule& rule, const OpCall& call, const AxisState& state) : rule_(rule), call_(call), state_(state) {}

  std::optional<Strategy> choose() {
    replicate();
    if (rule_.map) {
      follow();
    } else {
      for (const std::vector<int>& set : rule_.linear) pass_partials(set);
      for (size_t i = 0; i < state_.current.size(); ++i) {
        if (state_.current[i].is_shard() && i < rule_.inputs.size()) cut_like(i);
      }
    }
    return best_;
  }

 private:
  size_t num_outputs() const { return rule_.map ? 1 : rule_.outputs.size(); }

  void consider(Strategy strategy) {
    for (const int unread : rule_.unread) {
      const auto i = static_cast<size_t>(unread);
      const Placement& now = state_.current[i];
      if (!now.is_shard() || rule_.inputs[i][static_cast<size_t>(now.dim)] == kFixed) strategy.inputs[i] = now;
    }
    for (const int written : state_.written) {
      const Placement& wanted = strategy.inputs[static_cast<size_t>(written)];
      if (wanted != state_.current[static_cast<size_t>(written)]) return;
    }
    for (const auto& [result, tensor] : state_.returned) {
      const size_t output = std::min(static_cast<size_t>(result), strategy.outputs.size() - 1);
      if (strategy.outputs[output].placement != state_.current[static_cast<size_t>(tensor)]) return;
    }
    for (size_t i = 0; i < state_.current.size(); ++i) {
      const Placement &from = state_.current[i], &to = strategy.inputs[i];
      if (from == to) continue;
      if (to.is_partial() && !from.is_replicate()) return;
      strategy.cost += cost_of(movement_between(from, to), state_.axis_size, state_.local_elements[i]);
    }
    if (!best_ || strategy.cost < best_->cost) best_ = std::move(strategy);
  }

  void replicate() {
    consider({std::vector<Placement>(state_.current.size()), std::vector<Cut>(num_outputs()), rule_.execution});
  }

  void follow() {
    const Placement& from = state_.current[0];
    Strategy strategy{state_.current, std::vector<Cut>(1), rule_.execution};
    std::fill(strategy.inputs.begin() + 1, strategy.inputs.end(), Placement::replicate());
    if (from.is_partial() && rule_.keeps_partial) {
      strategy.outputs[0] = {from, 0};
      consider(strategy);
    } else if (from.is_shard()) {
      const std::optional<Mapped> mapped = rule_.map(from, state_.axis_size);
      if (!mapped) return;
      strategy.outputs = mapped->outputs;
      strategy.divided = mapped->divided;
      consider(strategy);
    }
  }

  void pass_partials(const std::vector<int>& set) {
    const bool special = rule_.linear_execution != Execution::kPlain;
    Strategy strategy{
        std::vector<Placement>(state_.current.size()), {}, special ? rule_.linear_execution : rule_.execution};
    for (const int input : set) {
      const Placement& now = state_.current[static_cast<size_t>(input)];
      // An in-place addend of a partial sum is added on one rank.
      const bool may_spread = set.size() > 1 && !state_.written.empty() && input != state_.written[0];
      if (!now.is_sum() && !(may_spread && now.is_replicate())) return;
      strategy.inputs[static_cast<size_t>(input)] = Placement::partial();
    }
    strategy.outputs.assign(num_outputs(), {Placement::partial(), 0});
    consider(strategy);
  }

  int64_t extent_of(size_t input, int label) const {
    return call_.tensors[input][static_cast<size_t>(dim_of(rule_.inputs[input], label))];
  }
  bool is_whole(int label, size_t output) const {
    const auto& all = rule_.whole;
    return std::find(all.begin(), all.end(), std::pair(label, static_cast<int>(output))) != all.end();
  }
  /// The last rank has the fewest elements.
  bool is_empty_somewhere(const Placement& cut, int64_t extent) const {
    return local_extent(cut, extent, state_.axis_size, state_.axis_size - 1) == 0;
  }

  /// Shards all tensors along the label that input i is sharded along.
  void cut_like(size_t i) {
    const Placement& cut = state_.current[i];
    const int label = rule_.inputs[i][static_cast<size_t>(cut.dim)];
    if (label == kFixed) return;
    const int64_t extent = call_.tensors[i][static_cast<size_t>(cut.dim)];
    const bool again = has(state_.cut_labels, label), leaves_none = is_empty_somewhere(cut, extent) || again;
    if (rule_.never_empty && leaves_none) return;
    if (label == rule_.proportional && (again || cut.stretches != 1 || !is_even(cut, extent, state_.axis_size))) return;
    if (again && cut != Placement::shard(cut.dim)) return;  // what an earlier axis leaves may not fit
    Strategy strategy{std::vector<Placement>(state_.current.size()), std::vector<Cut>(num_outputs()), rule_.execution};
    strategy.label = label;
    for (size_t input = 0; input < rule_.inputs.size(); ++input) {
      const int dim = dim_of(rule_.inputs[input], label);
      if (dim < 0) continue;
      const int64_t own = call_.tensors[input][static_cast<size_t>(dim)];
      if (own != extent && (label != rule_.proportional || !is_even(cut, own, state_.axis_size) || !fits(cut, own)))
        return;
      strategy.inputs[input] = cut.with_dim(dim);
    }
    bool partial = false;
    for (size_t output = 0; output < num_outputs(); ++output) {
      const int dim = dim_of(rule_.outputs[output], label);
      if (dim >= 0) {
        const bool follows = label == rule_.proportional;
        strategy.outputs[output] = {cut.with_dim(dim),
                                    follows ? extent_of(static_cast<size_t>(rule_.like[output]), label) : extent};
      } else if (!is_whole(label, output)) {
        if (!has(rule_.reduced, label)) return;
        strategy.outputs[output] = {Placement::partial(rule_.reduction), 0};
        partial = true;
      }
    }
    if (partial && rule_.reduction != PartialOp::kSum && leaves_none) return;  // the maximum of no elements
    for (const int addend : rule_.addends) {
      if (partial && dim_of(rule_.inputs[static_cast<size_t>(addend)], label) < 0) {
        strategy.inputs[static_cast<size_t>(addend)] = Placement::partial();
      }
    }
    for (const auto& [special, execution] : rule_.special) {
      if (special != label) continue;
      const bool counts_only = execution == Execution::kMean || execution == Execution::kVectorNorm;
      if (!counts_only && (again || cut.stretches != 1 || cut.ratio != Placement::Ratio{1, 0, 0})) return;
      strategy.execution = execution;
      // These finish their sums themselves.
      if (execution == Execution::kNegativeLikelihood || execution == Execution::kVectorNorm) {
        for (Cut& output : strategy.outputs) {
          if (output.placement.is_partial()) output = {};
        }
      }
    }
    consider(std::move(strategy));
  }

  const OpRule& rule_;
  const OpCall& call_;
  const AxisState& state_;
  std::optional<Strategy> best_;
};

const std::vector<int64_t> kNoSizes;

}  // namespace

int OpCall::index(size_t argument) const {
  if (argument >= arguments.size()) return -1;
  const auto* tensor = std::get_if<TensorArgument>(&arguments[argument]);
  return tensor ? tensor->index : -1;
}

const std::vector<int64_t>& OpCall::sizes(size_t argument) const {
  const int at = index(argument);
  return at < 0 ? kNoSizes : tensors[static_cast<size_t>(at)];
}

std::vector<int64_t> OpCall::integers(size_t argument) const {
  if (argument >= arguments.size()) return {};
  if (const auto* list = std::get_if<std::vector<int64_t>>(&arguments[argument])) return *list;
  if (const auto* one = std::get_if<int64_t>(&arguments[argument])) return {*one};
  return {};
}

int64_t OpCall::integer(size_t argument, int64_t otherwise) const {
  if (argument >= arguments.size()) return otherwise;
  const auto* value = std::get_if<int64_t>(&arguments[argument]);
  return value ? *value : otherwise;
}

bool OpCall::flag(size_t argument, bool otherwise) const {
  if (argument >= arguments.size()) return otherwise;
  const auto* value = std::get_if<bool>(&arguments[argument]);
  return value ? *value : otherwise;
}

std::optional<Strategy> choose_strategy(const OpRule& rule, const OpCall& call, const AxisState& state) {
  return Chooser(rule, call, state).choose();
}

}  // namespace trireme
