#include "trireme/plan/graph/intra_op.h"

#include <algorithm>
#include <map>
#include <regex>
#include <tuple>

#include "trireme/base/index.h"
#include "trireme/base/text.h"
#include "trireme/program/schedules/partition.h"

namespace trireme {
namespace {

LayerRange layers_of(const IntraOpProblem& problem) {
  return problem.layers.last > problem.layers.first ? problem.layers : LayerRange{0, problem.graph->num_layers};
}

bool has(const LayerRange& range, int layer) { return layer >= range.first && layer < range.last; }

/// Representative of each operator within the range.
std::vector<int> stand_ins(const IntraOpProblem& problem, const LayerRange& range) {
  const Graph& graph = *problem.graph;
  const Folding folding = fold_layers(graph, problem.fold ? 2 : graph.num_layers + 1);
  std::vector<int> stands(graph.operators.size(), -1);
  std::map<int, int> first;  // first operator of the range, by representative
  for (size_t o = 0; o < graph.operators.size(); ++o) {
    if (!has(range, graph.operators[o].layer)) continue;
    stands[o] = first.emplace(folding.representative[o], static_cast<int>(o)).first->second;
  }
  return stands;
}

std::vector<Placement> gradient_home(std::vector<Placement> made) {
  for (Placement& p : made) {
    if (p.is_partial()) p = Placement::replicate();
  }
  return made;
}

/// The trainer's placement of a parameter on a mesh whose last axis is its tensor ranks.
std::vector<Placement> recipe_of(const GraphTensor& tensor, size_t num_axes, int ranks) {
  std::vector<Placement> placements(num_axes);
  const int dim = tensor.recipe_dim;
  if (dim < 0) return placements;
  const Placement cut = tensor.packed_dim == dim ? tensor.packed : Placement::shard(dim);
  const int64_t extent = tensor.sizes[at(dim)];
  if (fits(cut, extent) && is_even(cut, extent, ranks)) placements.back() = cut;
  return placements;
}

/// Placements of the parameter as the module stores it, for a file.
std::string placement_text(const GraphTensor& tensor, std::vector<Placement> placements,
                           const std::vector<int64_t>& axis_sizes) {
  std::vector<std::string> words;
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    Placement& p = placements[axis];
    const bool cuts_nothing = axis < axis_sizes.size() && axis_sizes[axis] == 1;
    if (p.is_partial() || cuts_nothing)
      p = Placement::replicate();  // partial placements are reduced where they are used
    if (tensor.packs_modules && p.is_shard()) p = Placement::shard(p.dim);
    if (tensor.transposed && p.is_shard()) p = p.with_dim(1 - p.dim);
    words.push_back(p.to_string());
  }
  return "[" + join(words, ", ") + "]";
}

/// Returns a line per parameter of the layers; `placements(operator, input)` returns its placements.
template <typename Placements>
std::vector<std::pair<std::string, std::string>> lines_of(const Graph& graph, const LayerRange& layers,
                                                          const std::vector<int64_t>& axis_sizes,
                                                          const Placements& placements) {
  std::vector<std::pair<std::string, std::string>> lines;
  for (size_t o = 0; o < graph.operators.size(); ++o) {
    const GraphOperator& op = graph.operators[o];
    if (!has(layers, op.layer)) continue;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const GraphTensor& tensor = graph.tensors[at(op.inputs[i])];
      if (!tensor.is_parameter) continue;
      const std::pair line(name_in_plan(tensor.name), placement_text(tensor, placements(o, i), axis_sizes));
      if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
    }
  }
  return lines;
}

struct ProblemBuilder {
  const IntraOpProblem& problem;
  const Graph& graph = *problem.graph;
  LayerRange range = layers_of(problem);
  std::vector<int> stands = stand_ins(problem, range);
  StrategyCosts costs{graph, problem.cluster, problem.mesh, problem.setting};
  IntraOpChoices made = {};
  std::vector<int> node_of = std::vector<int>(graph.operators.size(), -1);
  std::vector<std::vector<double>> first_cost = {};  ///< costs of each node's own operator

  std::vector<OperatorStrategy> keep_recipe(const GraphOperator& op, const std::vector<OperatorStrategy>& all) const {
    std::vector<OperatorStrategy> kept;
    for (const OperatorStrategy& strategy : all) {
      bool follows = true;
      for (size_t i = 0; i < op.inputs.size(); ++i) {
        const GraphTensor& tensor = graph.tensors[at(op.inputs[i])];
        const std::vector<int>& mesh = problem.mesh.sizes;
        if (tensor.is_parameter) follows = follows && strategy.inputs[i] == recipe_of(tensor, mesh.size(), mesh.back());
      }
      if (follows) kept.push_back(strategy);
    }
    return kept.empty() ? all : kept;
  }

  void add_nodes() {
    std::vector<std::vector<OperatorStrategy>> all = strategies_of(graph, problem.mesh, stands);
    for (size_t o = 0; problem.by_recipe && o < all.size(); ++o) all[o] = keep_recipe(graph.operators[o], all[o]);
    for (size_t o = 0; o < graph.operators.size(); ++o) {
      if (stands[o] != static_cast<int>(o)) continue;
      node_of[o] = static_cast<int>(made.problem.nodes.size());
      const std::vector<double> zeros(all[o].size(), 0);
      made.problem.nodes.push_back({zeros, zeros});
      made.operators.push_back(static_cast<int>(o));
      made.strategies.push_back(all[o]);
    }
    for (size_t o = 0; o < graph.operators.size(); ++o) {
      if (stands[o] < 0) continue;
      const auto n = at(node_of[at(stands[o])]);
      ChoiceNode& node = made.problem.nodes[n];
      const GraphOperator& op = graph.operators[o];
      const bool same = stands[o] == static_cast<int>(o);
      for (size_t i = 0; i < node.costs.size(); ++i) {
        const OperatorStrategy& strategy = made.strategies[n][i];
        // Copies cost as much as their representative; a parameter's bytes count at its first use.
        node.costs[i] += same ? cost_of(op, strategy) : first_cost[n][i];
        node.bytes[i] += costs.bytes(op, strategy);
      }
      if (same) first_cost.push_back(node.costs);  // nodes are numbered in the order of their operators
    }
    for (size_t o = 0; o < graph.operators.size(); ++o) {
      if (stands[o] >= 0) node_of[o] = node_of[at(stands[o])];
    }
  }

  double cost_of(const GraphOperator& op, const OperatorStrategy& strategy) const {
    return costs.computing(op, strategy) + costs.gradient_sums(op, strategy) / problem.setting.micro_batches;
  }

  double edge_cost(const GraphOperator& from, const GraphOperator& to, int tensor, const OperatorStrategy& a,
                   const OperatorStrategy& b) const {
    double seconds = 0;
    for (size_t output = 0; output < from.outputs.size(); ++output) {
      if (from.outputs[output] != tensor) continue;
      for (size_t input = 0; input < to.inputs.size(); ++input) {
        if (to.inputs[input] != tensor) continue;
        seconds +=
            costs.moving(graph.tensors[at(tensor)], a.outputs[output], b.inputs[input], b.input_gradients[input]);
      }
    }
    return seconds;
  }

  /// An edge between folded layers represents all its copies.
  struct Bundle {
    size_t producer, consumer;
    int tensor;
    double copies;
  };

  void add_edges() {
    std::map<std::tuple<int, int, size_t>, Bundle> bundles;
    std::map<std::pair<int, int>, size_t> known;
    for (size_t o = 0; o < graph.operators.size(); ++o) {
      if (stands[o] < 0) continue;
      const std::vector<int>& inputs = graph.operators[o].inputs;
      for (size_t i = 0; i < inputs.size(); ++i) {
        const int tensor = inputs[i], producer = graph.tensors[at(tensor)].producer;
        if (producer < 0 || stands[at(producer)] < 0) continue;
        if (std::find(inputs.begin(), inputs.end(), tensor) - inputs.begin() < static_cast<std::ptrdiff_t>(i)) continue;
        const Bundle bundle{at(producer), o, tensor, 0};
        ++bundles.try_emplace({stands[at(producer)], stands[o], i}, bundle).first->second.copies;
      }
      add_tied_parameters(o, known);
    }
    for (const auto& entry : bundles) {
      const Bundle& bundle = entry.second;
      const GraphOperator &from = graph.operators[bundle.producer], &to = graph.operators[bundle.consumer];
      fill(node_of[bundle.producer], node_of[bundle.consumer], known,
           [&](const OperatorStrategy& x, const OperatorStrategy& y) {
             return std::min(kForbidden, bundle.copies * edge_cost(from, to, bundle.tensor, x, y));
           });
    }
  }

  /// A parameter with two users has the placement of one, and is redistributed for the other.
  void add_tied_parameters(size_t consumer, std::map<std::pair<int, int>, size_t>& known) {
    const GraphOperator& op = graph.operators[consumer];
    for (size_t input = 0; input < op.inputs.size(); ++input) {
      const GraphTensor& tensor = graph.tensors[at(op.inputs[input])];
      if (!tensor.is_parameter) continue;
      for (size_t other = 0; other < consumer; ++other) {
        const auto& inputs = graph.operators[other].inputs;
        const auto place = std::find(inputs.begin(), inputs.end(), op.inputs[input]);
        if (place == inputs.end() || stands[other] < 0) continue;
        const auto there = static_cast<size_t>(place - inputs.begin());
        fill(node_of[other], node_of[consumer], known, [&](const OperatorStrategy& x, const OperatorStrategy& y) {
          return costs.moving(tensor, x.inputs[there], y.inputs[input], gradient_home(y.inputs[input]));
        });
        break;
      }
    }
  }

  template <typename Cost>
  void fill(int a, int b, std::map<std::pair<int, int>, size_t>& known, Cost cost) {
    const auto &ways_a = made.strategies[at(a)], &ways_b = made.strategies[at(b)];
    if (a == b) {  // an operator that reads its counterpart in the previous layer
      for (size_t i = 0; i < ways_a.size(); ++i) made.problem.nodes[at(a)].costs[i] += cost(ways_a[i], ways_a[i]);
      return;
    }
    const auto [entry, is_new] = known.emplace(std::pair(a, b), made.problem.edges.size());
    if (is_new) made.problem.edges.push_back({a, b, std::vector<double>(ways_a.size() * ways_b.size(), 0)});
    ChoiceEdge& edge = made.problem.edges[entry->second];
    for (size_t i = 0; i < ways_a.size(); ++i) {
      for (size_t j = 0; j < ways_b.size(); ++j) edge.costs[i * ways_b.size() + j] += cost(ways_a[i], ways_b[j]);
    }
  }
};

}  // namespace

IntraOpChoices choices_of(const IntraOpProblem& problem) {
  ProblemBuilder builder{problem};
  builder.add_nodes();
  builder.add_edges();
  builder.made.problem.limit_bytes = problem.limit_bytes;
  return std::move(builder.made);
}

IntraOpPlan plan_operators(const IntraOpProblem& problem) {
  ProblemBuilder builder{problem};
  builder.add_nodes();
  builder.add_edges();
  builder.made.problem.limit_bytes = problem.limit_bytes;
  const ChoiceSolution solution = solve(builder.made.problem);
  const Graph& graph = *problem.graph;
  IntraOpPlan plan;
  plan.proof = solution.proof;
  plan.least_bytes = solution.least_bytes;
  if (solution.proof == ChoiceProof::kInfeasible) return plan;
  plan.seconds = solution.cost;
  plan.bytes = solution.bytes;
  plan.strategies.resize(graph.operators.size());
  plan.layer_seconds.assign(at(graph.num_layers), 0);
  plan.layer_state_bytes = plan.layer_activation_bytes = plan.layer_seconds;
  for (size_t o = 0; o < graph.operators.size(); ++o) {
    if (builder.stands[o] < 0) continue;
    const auto n = at(builder.node_of[o]);
    plan.strategies[o] = builder.made.strategies[n][at(solution.choices[n])];
  }
  for (size_t o = 0; o < graph.operators.size(); ++o) {
    if (builder.stands[o] < 0) continue;
    const GraphOperator& op = graph.operators[o];
    const auto layer = at(op.layer);
    double seconds = builder.cost_of(op, plan.strategies[o]);
    std::vector<int> seen;
    for (const int tensor : op.inputs) {
      const int producer = graph.tensors[at(tensor)].producer;
      if (producer < 0 || builder.stands[at(producer)] < 0) continue;
      if (std::find(seen.begin(), seen.end(), tensor) != seen.end()) continue;
      seen.push_back(tensor);
      seconds += builder.edge_cost(graph.operators[at(producer)], op, tensor, plan.strategies[at(producer)],
                                   plan.strategies[o]);
    }
    plan.layer_seconds[layer] += seconds;
    plan.layer_state_bytes[layer] += builder.costs.state_bytes(op, plan.strategies[o]);
    plan.layer_activation_bytes[layer] += builder.costs.activation_bytes(op, plan.strategies[o]);
  }
  return plan;
}

std::string name_in_plan(const std::string& parameter) {
  static const std::regex kNumber("layers\\.\\d+\\.");
  return std::regex_replace(parameter, kNumber, "layers.*.");
}

std::vector<std::pair<std::string, std::string>> placements_of(const Graph& graph, const IntraOpPlan& plan,
                                                               const LayerRange& layers,
                                                               const std::vector<int64_t>& axis_sizes) {
  return lines_of(graph, layers, axis_sizes, [&](size_t o, size_t i) { return plan.strategies[o].inputs[i]; });
}

std::vector<std::pair<std::string, std::string>> trained_placements(const Graph& graph, const LayerRange& layers,
                                                                    int64_t dp, int64_t tp) {
  return lines_of(graph, layers, {dp, tp}, [&](size_t o, size_t i) {
    return recipe_of(graph.tensors[at(graph.operators[o].inputs[i])], 2, static_cast<int>(tp));
  });
}

}  // namespace trireme
