#include "trireme/plan/graph/strategy.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "trireme/base/index.h"
#include "trireme/base/text.h"

namespace trireme {
namespace {

bool is_plain(const Placement& p) { return p.is_shard() && p.stretches == 1 && p.ratio == Placement::Ratio{1, 0, 0}; }

/// A strategy along one axis.
struct AxisStrategy {
  std::vector<Placement> inputs, outputs;
  int label = kFixed;
  bool is_cut = false;
  bool operator==(const AxisStrategy& other) const { return inputs == other.inputs && outputs == other.outputs; }
};

void add_new(std::vector<Placement>& list, const Placement& placement) {
  if (std::find(list.begin(), list.end(), placement) == list.end()) list.push_back(placement);
}

/// Enumerates strategies along one axis, operator by operator.
class AxisStrategies {
 public:
  AxisStrategies(const Graph& graph, int axis_size) : graph_(graph), size_(axis_size), ways_(graph.tensors.size()) {
    for (size_t i = 0; i < graph.tensors.size(); ++i) {
      const GraphTensor& tensor = graph.tensors[i];
      if (tensor.producer >= 0) continue;
      for (size_t dim = 0; dim < tensor.sizes.size(); ++dim) {
        const int d = static_cast<int>(dim);
        offer(i, tensor.packed_dim == d ? tensor.packed : Placement::shard(d));
      }
    }
  }

  std::vector<std::vector<AxisStrategy>> all(const std::vector<int>& stand_ins) {
    std::vector<std::vector<AxisStrategy>> result;
    for (size_t o = 0; o < graph_.operators.size(); ++o) {
      const GraphOperator& op = graph_.operators[o];
      const int like = stand_ins.empty() || stand_ins[o] < 0 ? static_cast<int>(o) : stand_ins[o];
      if (like != static_cast<int>(o)) {
        const GraphOperator& model = graph_.operators[at(like)];
        for (size_t i = 0; i < op.outputs.size(); ++i) ways_[at(op.outputs[i])] = ways_[at(model.outputs[i])];
        result.emplace_back();
        continue;
      }
      const std::vector<AxisStrategy> found = of(op);
      for (const AxisStrategy& strategy : found) {
        for (size_t i = 0; i < op.outputs.size(); ++i) {
          const Placement& there = strategy.outputs[i];
          if (there.is_shard()) offer(at(op.outputs[i]), there);
          if (there.is_sum()) add_new(ways_[at(op.outputs[i])], there);
        }
      }
      result.push_back(found);
    }
    return result;
  }

 private:
  /// Only even shards, so that ranks have equal work.
  void offer(size_t tensor, const Placement& cut) {
    const int64_t extent = graph_.tensors[tensor].sizes[at(cut.dim)];
    if (fits(cut, extent) && is_even(cut, extent, size_) && extent >= size_) add_new(ways_[tensor], cut);
  }

  std::vector<AxisStrategy> of(const GraphOperator& op) {
    std::vector<AxisStrategy> found;
    const std::optional<OpRule> rule = find_rule(op.call);
    const size_t count = op.inputs.size();
    if (!rule) {  // mesh tensors gather the inputs of operators without a rule
      return {{std::vector<Placement>(count), std::vector<Placement>(op.outputs.size())}};
    }
    const auto attempt = [&](const std::vector<Placement>& current, size_t anchor) {
      AxisState state{size_, current, std::vector<double>(count, 1), op.written, {}};
      // Redistributing the main input costs more than redistributing all others, so the others follow it.
      state.local_elements[anchor] = 1e12;
      const std::optional<Strategy> chosen = choose_strategy(*rule, op.call, state);
      if (!chosen || chosen->inputs[anchor] != current[anchor]) return;
      AxisStrategy strategy{chosen->inputs, {}, chosen->label};
      for (size_t i = 0; i < op.outputs.size(); ++i) {
        strategy.outputs.push_back(chosen->outputs[std::min(i, chosen->outputs.size() - 1)].placement);
      }
      for (const auto* list : {&strategy.inputs, &strategy.outputs}) {
        for (const Placement& p : *list) strategy.is_cut = strategy.is_cut || p.is_shard();
      }
      if (is_even_everywhere(op, strategy) && std::find(found.begin(), found.end(), strategy) == found.end()) {
        found.push_back(std::move(strategy));
      }
    };
    attempt(std::vector<Placement>(count), 0);
    for (size_t i = 0; i < count; ++i) {
      for (const Placement& way : ways_[at(op.inputs[i])]) {
        std::vector<Placement> current(count);
        current[i] = way;
        attempt(current, i);
      }
    }
    for (const std::vector<int>& set : rule->linear) {  // sums of tensors that are all partial
      std::vector<Placement> current(count);
      bool all = true;
      for (const int i : set) {
        current[at(i)] = Placement::partial();
        const auto& ways = ways_[at(op.inputs[at(i)])];
        all = all && std::any_of(ways.begin(), ways.end(), [](const Placement& p) { return p.is_sum(); });
      }
      if (all) attempt(current, at(set[0]));
    }
    return found;
  }

  bool is_even_everywhere(const GraphOperator& op, const AxisStrategy& strategy) const {
    const auto even = [&](int tensor, const Placement& p) {
      if (!p.is_shard()) return true;
      const int64_t extent = graph_.tensors[at(tensor)].sizes[at(p.dim)];
      return fits(p, extent) && is_even(p, extent, size_) && extent >= size_;
    };
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (!even(op.inputs[i], strategy.inputs[i])) return false;
    }
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      if (!even(op.outputs[i], strategy.outputs[i])) return false;
    }
    return true;
  }

  const Graph& graph_;
  const int size_;
  std::vector<std::vector<Placement>> ways_;
};

/// Two axes may shard the same dim if both use plain blocks and the result is even.
bool go_together(const Graph& graph, const std::vector<int>& tensors, const std::vector<Placement>& a,
                 const std::vector<Placement>& b, const StageMesh& mesh) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!a[i].is_shard() || !b[i].is_shard(a[i].dim)) continue;
    const int64_t extent = graph.tensors[at(tensors[i])].sizes[at(a[i].dim)];
    if (!is_plain(a[i]) || !is_plain(b[i]) || extent % mesh.num_devices() != 0) return false;
  }
  return true;
}

/// A replicated tensor has partial gradients on ranks that compute different parts.
Placement gradient_of(const Placement& input, bool is_cut) {
  if (input.is_replicate() && is_cut) return Placement::partial();
  return input.is_partial() ? Placement::replicate() : input;
}

}  // namespace

int StageMesh::num_devices() const {
  int product = 1;
  for (const int size : sizes) product *= size;
  return product;
}

std::string OperatorStrategy::to_string() const {
  const std::vector<Placement>& shown = inputs.size() > 1 ? inputs[1] : outputs[0];
  std::vector<std::string> words;
  for (const Placement& placement : shown) words.push_back(placement.to_string());
  return fmt::format("[{}]", join(words, ", "));
}

std::vector<std::vector<OperatorStrategy>> strategies_of(const Graph& graph, const StageMesh& mesh,
                                                         const std::vector<int>& stand_ins) {
  std::vector<std::vector<std::vector<AxisStrategy>>> axes;
  for (const int size : mesh.sizes) axes.push_back(AxisStrategies(graph, size).all(stand_ins));
  std::vector<std::vector<OperatorStrategy>> result(graph.operators.size());
  for (size_t o = 0; o < graph.operators.size(); ++o) {
    const GraphOperator& op = graph.operators[o];
    const auto put = [&](const std::vector<const AxisStrategy*>& ways) {
      OperatorStrategy strategy;
      for (size_t i = 0; i < op.inputs.size(); ++i) {
        strategy.inputs.emplace_back();
        strategy.input_gradients.emplace_back();
        for (const AxisStrategy* way : ways) {
          strategy.inputs.back().push_back(way->inputs[i]);
          strategy.input_gradients.back().push_back(gradient_of(way->inputs[i], way->is_cut));
        }
      }
      for (size_t i = 0; i < op.outputs.size(); ++i) {
        strategy.outputs.emplace_back();
        for (const AxisStrategy* way : ways) strategy.outputs.back().push_back(way->outputs[i]);
      }
      result[o].push_back(std::move(strategy));
    };
    for (const AxisStrategy& first : axes[0][o]) {
      if (axes.size() == 1) {
        put({&first});
        continue;
      }
      for (const AxisStrategy& second : axes[1][o]) {
        if (go_together(graph, op.inputs, first.inputs, second.inputs, mesh) &&
            go_together(graph, op.outputs, first.outputs, second.outputs, mesh)) {
          put({&first, &second});
        }
      }
    }
  }
  return result;
}

}  // namespace trireme
