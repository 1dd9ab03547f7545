#include "trireme/plan/graph/graph_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "trireme/base/error.h"
#include "trireme/base/index.h"
#include "trireme/base/units.h"
#include "trireme/plan/candidates.h"
#include "trireme/plan/graph/cluster_layers.h"
#include "trireme/plan/graph/graph_stages.h"

namespace trireme {
namespace {

class Planner {
 public:
  Planner(const std::function<Graph(int64_t)>& graph_of, int64_t batch, const Cluster& cluster, int num_devices,
          const GraphPlanOptions& options)
      : graph_of_(graph_of), batch_(batch), cluster_(cluster), devices_(num_devices), options_(options) {
    if (options_.limit_bytes == 0) options_.limit_bytes = cluster.device.memory_bytes;
  }

  /// Layouts of one mesh and of uniform stages first, as they are simpler.
  std::vector<GraphPlan> plans() {
    if (options_.layout != "auto") return {plan(graph_layout_from(options_.layout, devices_))};
    std::vector<GraphPlan> all;
    all.push_back(plan({.meshes = {{{devices_}}}}));
    for (const int64_t first : divisors_of(devices_)) {
      const int a = static_cast<int>(first), b = devices_ / a;
      if (a > 1 && b > 1) all.push_back(plan({.meshes = {{{a, b}}}}));
      if (a == 1) continue;
      for (const int64_t m : divisors_of(batch_)) {
        if (batch_ % (m * b) != 0 || m > 8 * a) continue;
        all.push_back(plan({std::vector<StageMesh>(first, {{1}}), b, static_cast<int>(m)}));
      }
    }
    for (const int64_t m : divisors_of(batch_)) {
      if (devices_ < 3 || m == 1 || m > 8 * devices_) continue;
      GraphPlan plan = on_stages({{}, 1, static_cast<int>(m)});
      if (plan.seconds < kForbidden && lies_across_hosts(plan.layout)) plan = on_equal_stages(static_cast<int>(m));
      if (plan.seconds < kForbidden && !plan.layout.has_plain_stages()) all.push_back(std::move(plan));
    }
    return all;
  }
  double limit() const { return options_.limit_bytes; }

 private:
  /// Returns the graph with layers, clustered by the costs on one device.
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

  GraphPlan plan(const GraphLayout& layout) {
    if (batch_ % (int64_t{layout.replicas} * layout.micro_batches) != 0) {
      throw UsageError(fmt::format("a batch of {} cannot be cut as \"{}\" says", batch_, layout.to_string()),
                       "let replicas times micro-batches divide it");
    }
    return layout.is_pipeline() ? on_stages(layout) : on_mesh(layout);
  }

  GraphPlan on_mesh(const GraphLayout& layout) {
    GraphPlan plan{.layout = layout, .graph = graph(batch_)};
    plan.operators = operators_on(plan.graph, layout.meshes[0], options_.limit_bytes);
    if (plan.operators.proof == ChoiceProof::kInfeasible) {
      plan.seconds = kForbidden;
      plan.bytes = plan.operators.least_bytes;
      return plan;
    }
    plan.seconds = plan.operators.seconds;
    plan.bytes = plan.operators.bytes;
    plan.stages = {{0, plan.graph.num_layers}};
    plan.recompute = {false};
    plan.stage_bytes = {plan.bytes};
    return plan;
  }

  /// If no meshes are given: the fastest ones.
  GraphPlan on_stages(const GraphLayout& layout) {
    const int64_t samples = batch_ / (int64_t{layout.replicas} * layout.micro_batches);
    GraphPlan plan{.layout = layout, .graph = graph(samples)};
    std::optional<GraphStages> found = plan_graph_stages({.graph = &plan.graph,
                                                          .cluster = &cluster_,
                                                          .meshes = layout.meshes,
                                                          .num_devices = devices_,
                                                          .micro_batches = layout.micro_batches,
                                                          .limit_bytes = options_.limit_bytes,
                                                          .setting = options_.setting});
    if (!found) {
      plan.seconds = kForbidden;
      return plan;
    }
    plan.layout.meshes = std::move(found->meshes);
    plan.stages = std::move(found->layers);
    plan.recompute = std::move(found->recompute);
    plan.stage_bytes = std::move(found->bytes);
    plan.operators = std::move(found->operators);
    plan.bytes = plan.operators.bytes;
    plan.seconds = found->seconds + sums_over_replicas(plan);
    return plan;
  }

  /// A stage that spans parts of two hosts would be slower than its estimate.
  bool lies_across_hosts(const GraphLayout& layout) const {
    const int host = cluster_.devices_per_host;
    int first = 0;
    for (const StageMesh& mesh : layout.meshes) {
      const int last = first + mesh.num_devices() - 1;
      const bool fills = first % host == 0 && mesh.num_devices() % host == 0;
      if (first / host != last / host && !fills) return true;
      first = last + 1;
    }
    return false;
  }

  /// The fastest pipeline whose stages have equal meshes that divide the hosts evenly.
  GraphPlan on_equal_stages(int micro_batches) {
    GraphPlan best;
    best.seconds = kForbidden;
    for (const int64_t count : divisors_of(devices_)) {
      if (count == 1 || count == devices_) continue;
      const GraphLayout layout = {
          std::vector<StageMesh>(static_cast<size_t>(count), {{static_cast<int>(devices_ / count)}}), 1, micro_batches};
      if (lies_across_hosts(layout)) continue;
      GraphPlan plan = on_stages(layout);
      if (plan.seconds < best.seconds) best = std::move(plan);
    }
    return best;
  }

  double sums_over_replicas(const GraphPlan& plan) const {
    if (plan.layout.replicas == 1) return 0;
    const RankGroup replicas = group_on(cluster_, plan.layout.replicas, plan.layout.num_stages());
    double slowest = 0;
    for (const LayerRange& layers : plan.stages) {
      double gradients = 0;
      for (int i = layers.first; i < layers.last; ++i) {
        gradients +=
            plan.operators.layer_state_bytes[at(i)] / options_.setting.state_bytes * options_.setting.gradient_bytes;
      }
      slowest = std::max(slowest, collective_seconds(CollectiveKind::kAllReduce, gradients, replicas, cluster_));
    }
    return slowest;
  }

  const std::function<Graph(int64_t)>& graph_of_;
  const int64_t batch_;
  const Cluster& cluster_;
  const int devices_;
  GraphPlanOptions options_;
  std::map<int64_t, Graph> graphs_;  ///< by number of samples
};

}  // namespace

GraphPlanReport plan_graph(const std::function<Graph(int64_t samples)>& graph_of, int64_t batch, const Cluster& cluster,
                           int num_devices, const GraphPlanOptions& options) {
  Planner planner(graph_of, batch, cluster, num_devices, options);
  GraphPlanReport report;
  double least = kForbidden;
  for (GraphPlan& plan : planner.plans()) {
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
  // Among nearly equal plans takes the simplest, which comes first.
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
  if (measured) return *measured;
  return otherwise == "laptop" ? cores_of_this_machine() : find_cluster(otherwise);
}

}  // namespace trireme
