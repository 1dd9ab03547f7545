#include "trireme/plan/graph_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/plan/candidates.h"
#include "trireme/plan/cluster_layers.h"
#include "trireme/plan/inter_op.h"

namespace trireme {
namespace {

size_t at(int n) { return static_cast<size_t>(n); }

class Planner {
 public:
  Planner(const std::function<Graph(int64_t)>& graph_of, int64_t batch, const Cluster& cluster, int num_devices,
          const GraphPlanOptions& options)
      : graph_of_(graph_of), batch_(batch), cluster_(cluster), devices_(num_devices), options_(options) {
    if (options_.limit_bytes == 0) options_.limit_bytes = cluster.device.memory_bytes;
  }

  std::vector<GraphLayout> layouts() const {
    if (options_.layout != "auto") return {graph_layout_from(options_.layout, devices_)};
    std::vector<GraphLayout> all;
    all.push_back({.mesh = {{devices_}}});
    for (const int64_t first : divisors_of(devices_)) {
      const int a = static_cast<int>(first), b = devices_ / a;
      if (a > 1 && b > 1) all.push_back({.mesh = {{a, b}}});
      if (a == 1) continue;
      for (const int64_t m : divisors_of(batch_)) {
        if (batch_ % (m * b) == 0 && m <= 8 * a) {
          all.push_back({.mesh = {{1}}, .stages = a, .replicas = b, .micro_batches = static_cast<int>(m)});
        }
      }
    }
    return all;
  }

  GraphPlan plan(const GraphLayout& layout) { return layout.is_pipeline() ? pipeline(layout) : on_mesh(layout); }
  double limit() const { return options_.limit_bytes; }

 private:
  /// With layers; costs of clustering are those of one device.
  const Graph& graph(int64_t samples) {
    const auto [entry, is_new] = graphs_.try_emplace(samples);
    if (!is_new) return entry->second;
    Graph& graph = entry->second = graph_of_(samples);
    const StageMesh one = {{1}};
    const StrategyCosts costs(graph, cluster_, one, options_.setting);
    const auto strategies = strategies_of(graph, one);
    std::vector<double> seconds;
    for (size_t o = 0; o < graph.operators.size(); ++o) {
      seconds.push_back(costs.computing(graph.operators[o], strategies[o].at(0)));
    }
    cluster_layers(graph, seconds, options_.num_layers, bytes_of(options_.setting.type));
    return graph;
  }

  IntraOpPlan operators_on(const Graph& graph, const StageMesh& mesh, double limit) const {
    IntraOpProblem problem;
    problem.graph = &graph;
    problem.cluster = cluster_;
    problem.mesh = mesh;
    problem.setting = options_.setting;
    problem.limit_bytes = limit;
    return plan_operators(problem);
  }

  GraphPlan on_mesh(const GraphLayout& layout) {
    GraphPlan plan{.layout = layout, .graph = graph(batch_), .operators = {}, .stages = {}};
    plan.operators = operators_on(plan.graph, layout.mesh, options_.limit_bytes);
    if (plan.operators.proof == ChoiceProof::kInfeasible) {
      plan.seconds = kForbidden;
      plan.bytes = plan.operators.least_bytes;
    } else {
      plan.seconds = plan.operators.seconds;
      plan.bytes = plan.operators.bytes;
    }
    return plan;
  }

  GraphPlan pipeline(const GraphLayout& layout) {
    const int64_t samples = batch_ / (int64_t{layout.replicas} * layout.micro_batches);
    GraphPlan plan{.layout = layout, .graph = graph(samples), .operators = {}, .stages = {}};
    plan.operators = operators_on(plan.graph, {{1}}, 0);
    const std::vector<double> crossing = layer_crossings(plan.graph);
    const IntraOpPlan& o = plan.operators;
    const auto bytes = [&](const LayerRange& layers, int stages_to_end) {
      double sum = 0;
      for (int i = layers.first; i < layers.last; ++i) {
        sum += o.layer_state_bytes[at(i)] +
               o.layer_activation_bytes[at(i)] * std::min(stages_to_end, layout.micro_batches);
      }
      return sum;
    };
    InterOpProblem problem;
    problem.num_layers = plan.graph.num_layers;
    problem.num_units = layout.stages;
    problem.mesh_units = {1};
    problem.micro_batches = layout.micro_batches;
    problem.seconds = [&](const LayerRange& layers, int, int stages_to_end) {
      if (bytes(layers, stages_to_end) > options_.limit_bytes) return kForbidden;
      double sum = 0;
      for (int i = layers.first; i < layers.last; ++i) sum += o.layer_seconds[at(i)];
      // What comes in, and its gradient that goes back.
      if (layers.first > 0) sum += 2 * message_seconds(crossing[at(layers.first)], 1, cluster_);
      return sum;
    };
    const std::optional<InterOpPlan> found = plan_stages(problem);
    if (!found) {
      plan.seconds = kForbidden;
      return plan;
    }
    plan.seconds = found->seconds;
    const RankGroup replicas = group_on(cluster_, layout.replicas, layout.stages);
    double sums = 0;
    int to_end = layout.stages;
    for (const InterOpStage& stage : found->stages) {
      plan.stages.push_back(stage.layers);
      plan.bytes = std::max(plan.bytes, bytes(stage.layers, to_end--));
      double parameters = 0;
      for (int i = stage.layers.first; i < stage.layers.last; ++i) {
        parameters += o.layer_state_bytes[at(i)] / options_.setting.state_bytes;
      }
      if (layout.replicas == 1) continue;
      const double gradients = parameters * options_.setting.gradient_bytes;
      sums = std::max(sums, collective_seconds(CollectiveKind::kAllReduce, gradients, replicas, cluster_));
    }
    plan.seconds += sums;
    return plan;
  }

  /// Bytes that pass into each layer.
  std::vector<double> layer_crossings(const Graph& graph) const {
    const std::vector<double> crossing = crossing_bytes(graph, bytes_of(options_.setting.type));
    std::vector<double> layers(at(graph.num_layers), 0);
    for (size_t o = graph.operators.size(); o-- > 0;) layers[at(graph.operators[o].layer)] = crossing[o];
    return layers;
  }

  const std::function<Graph(int64_t)>& graph_of_;
  const int64_t batch_;
  const Cluster& cluster_;
  const int devices_;
  GraphPlanOptions options_;
  std::map<int64_t, Graph> graphs_;  ///< by samples
};

}  // namespace

std::string GraphLayout::to_string() const {
  if (is_pipeline()) return fmt::format("pipeline {}x{}x{}", stages, replicas, micro_batches);
  std::vector<std::string> sizes;
  for (const int size : mesh.sizes) sizes.push_back(std::to_string(size));
  return fmt::format("mesh {}", join(sizes, "x"));
}

GraphLayout graph_layout_from(std::string_view text, int num_devices) {
  const char* const forms =
      "give \"auto\", \"mesh 4\", \"mesh 2x2\", or \"pipeline 2x1x4\": stages, replicas, micro-batches";
  const size_t space = text.find(' ');
  const std::string_view kind = text.substr(0, space);
  std::vector<int> numbers;
  int64_t devices = 1;
  for (const std::string_view word : split(space == text.npos ? "" : text.substr(space + 1), 'x')) {
    int number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error != std::errc() || end != word.data() + word.size() || number < 1) {
      throw UsageError(fmt::format("the layout \"{}\": {} is no number of devices", text, word), forms);
    }
    numbers.push_back(number);
  }
  GraphLayout layout;
  if (kind == "mesh" && (numbers.size() == 1 || numbers.size() == 2)) {
    layout.mesh = {numbers};
    devices = layout.mesh.num_devices();
  } else if (kind == "pipeline" && numbers.size() == 3 && numbers[0] > 1) {
    layout = {.mesh = {{1}}, .stages = numbers[0], .replicas = numbers[1], .micro_batches = numbers[2]};
    devices = int64_t{numbers[0]} * numbers[1];
  } else {
    throw UsageError(fmt::format("there is no layout \"{}\"", text), forms);
  }
  if (devices != num_devices) {
    throw UsageError(fmt::format("the layout \"{}\" is for {} workers, and there are {}", text, devices, num_devices),
                     forms);
  }
  return layout;
}

GraphPlanReport plan_graph(const std::function<Graph(int64_t samples)>& graph_of, int64_t batch, const Cluster& cluster,
                           int num_devices, const GraphPlanOptions& options) {
  Planner planner(graph_of, batch, cluster, num_devices, options);
  GraphPlanReport report;
  double least = kForbidden;
  for (const GraphLayout& layout : planner.layouts()) {
    if (batch % (int64_t{layout.replicas} * layout.micro_batches) != 0) {
      throw UsageError(fmt::format("a batch of {} cannot be cut as \"{}\" says", batch, layout.to_string()),
                       "let replicas times micro-batches divide it");
    }
    GraphPlan plan = planner.plan(layout);
    if (plan.seconds < kForbidden) {
      report.others.push_back(std::move(plan));
    } else if (plan.bytes > 0) {
      least = std::min(least, plan.bytes);
    }
  }
  if (report.others.empty()) {
    throw Error(
        fmt::format("no layout keeps {} in the {} of a device{}", num_devices == 1 ? "it" : "its part",
                    format_bytes(static_cast<uint64_t>(planner.limit())),
                    least < kForbidden ? fmt::format(": {} at least", format_bytes(static_cast<uint64_t>(least))) : ""),
        "take more workers, a smaller batch or a smaller model");
  }
  const auto faster = [](const GraphPlan& a, const GraphPlan& b) { return a.seconds < b.seconds; };
  const double best = std::min_element(report.others.begin(), report.others.end(), faster)->seconds;
  // Among those that are as good as equal the simplest, which comes first.
  const auto chosen = std::find_if(report.others.begin(), report.others.end(),
                                   [&](const GraphPlan& plan) { return plan.seconds <= 1.005 * best; });
  report.plan = std::move(*chosen);
  report.others.erase(chosen);
  std::stable_sort(report.others.begin(), report.others.end(), faster);
  return report;
}

Cluster cluster_at_hand(const std::string& otherwise) {
  if (const char* named = std::getenv("TRIREME_CLUSTER")) return find_clusters(named).front();
  const std::optional<Cluster> measured = measured_cluster(otherwise == "laptop");
  return measured ? *measured : find_cluster(otherwise);
}

}  // namespace trireme
