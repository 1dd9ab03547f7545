#include "trireme/plan/graph/graph_stages.h"

#include <algorithm>

#include "trireme/base/index.h"
#include "trireme/plan/graph/cluster_layers.h"
#include "trireme/plan/graph/inter_op.h"

namespace trireme {
namespace {

constexpr int kMostOddDevices = 8;  ///< larger sub-meshes have a power of two devices

/// A solution for the whole graph on a mesh, of which stages take their layers' slice.
struct WholeGraph {
  bool recompute = false;
  IntraOpPlan plan;
};

/// Returns the meshes that a stage may have, smallest first.
std::vector<StageMesh> shapes_below(int num_devices) {
  std::vector<StageMesh> shapes;
  for (int count = 1; count < num_devices; ++count) {
    if (count > kMostOddDevices && (count & (count - 1)) != 0) continue;
    shapes.push_back({{count}});
    for (int first = 2; first * first <= count; ++first) {
      if (count % first == 0) shapes.push_back({{first, count / first}});
    }
  }
  return shapes;
}

class EqualStages {
 public:
  explicit EqualStages(const GraphStagesProblem& problem)
      : p_(problem), graph_(*problem.graph), element_bytes_(bytes_of(problem.setting.type)) {
    if (p_.meshes.empty()) {
      shapes_ = shapes_below(p_.num_devices);
      units_ = p_.num_devices;
    }
    for (const StageMesh& mesh : p_.meshes) {
      if (std::find(shapes_.begin(), shapes_.end(), mesh) == shapes_.end()) shapes_.push_back(mesh);
      units_ += mesh.num_devices();
    }
    variants_.resize(shapes_.size());
    const std::vector<double> crossing = crossing_bytes(graph_, element_bytes_);
    crossing_.assign(at(graph_.num_layers), 0);
    for (size_t o = graph_.operators.size(); o-- > 0;) crossing_[at(graph_.operators[o].layer)] = crossing[o];
  }

  std::optional<GraphStages> run() {
    for (size_t shape = 0; shape < shapes_.size(); ++shape) add(shape, 0, RecomputeKind::kNone);
    std::optional<InterOpPlan> plan = search();
    if (was_refused_) {  // memory is the constraint: variants that save memory may give a faster plan, or a feasible
                         // one
      for (size_t shape = 0; shape < shapes_.size(); ++shape) {
        const double fraction = static_cast<double>(units_) / shapes_[shape].num_devices();
        add(shape, p_.limit_bytes * fraction, RecomputeKind::kNone);
        add(shape, 0, RecomputeKind::kFull);
        add(shape, p_.limit_bytes * fraction, RecomputeKind::kFull);
      }
      plan = search();
    }
    if (!plan) return std::nullopt;
    return result(*plan);
  }

 private:
  void add(size_t shape, double limit, RecomputeKind recompute) {
    IntraOpProblem problem;
    problem.graph = &graph_;
    problem.cluster = *p_.cluster;
    problem.mesh = shapes_[shape];
    problem.setting = p_.setting;
    problem.setting.micro_batches = p_.micro_batches;
    problem.setting.recompute = recompute;
    problem.limit_bytes = limit;
    IntraOpPlan plan = plan_operators(problem);
    if (plan.proof == ChoiceProof::kInfeasible) return;
    variants_[shape].push_back({recompute != RecomputeKind::kNone, std::move(plan)});
  }

  std::optional<InterOpPlan> search() {
    InterOpProblem problem;
    problem.num_layers = graph_.num_layers;
    problem.num_units = units_;
    for (const StageMesh& shape : shapes_) problem.mesh_units.push_back(shape.num_devices());
    problem.micro_batches = p_.micro_batches;
    problem.most_stages = static_cast<int>(p_.meshes.size());
    problem.seconds = [&](const LayerRange& layers, int shape, int to_end) {
      const int stage = static_cast<int>(p_.meshes.size()) - to_end;
      if (!p_.meshes.empty() && (stage < 0 || p_.meshes[at(stage)] != shapes_[at(shape)])) return kForbidden;
      const WholeGraph* variant = best(layers, at(shape), to_end);
      if (variant == nullptr) was_refused_ = true;
      return variant ? seconds(*variant, layers, at(shape)) : kForbidden;
    };
    return plan_stages(problem);
  }

  static double over(const std::vector<double>& values, const LayerRange& layers) {
    double sum = 0;
    for (int i = layers.first; i < layers.last; ++i) sum += values[at(i)];
    return sum;
  }

  /// A stage that recomputes keeps its inputs, and the activations of one micro-batch.
  double bytes(const WholeGraph& variant, const LayerRange& layers, int to_end) const {
    const double in_flight = std::min(to_end, p_.micro_batches);
    const double states = over(variant.plan.layer_state_bytes, layers);
    const double activations = over(variant.plan.layer_activation_bytes, layers);
    if (!variant.recompute) return states + in_flight * activations;
    return states + activations / kKeptByRecomputation + in_flight * crossing_[at(layers.first)];
  }

  /// Adds the transfer of its inputs, and of their gradients: [Note: Resharding].
  double seconds(const WholeGraph& variant, const LayerRange& layers, size_t shape) const {
    const double computing = over(variant.plan.layer_seconds, layers);
    if (layers.first == 0) return computing;
    const double entering = crossing_[at(layers.first)];
    const int devices = shapes_[shape].num_devices();
    double moving = message_seconds(entering / devices, devices, *p_.cluster);
    if (devices > 1) {
      moving +=
          collective_seconds(CollectiveKind::kAllGather, entering, group_on(*p_.cluster, devices, 1), *p_.cluster);
    }
    return computing + 2 * moving;
  }

  const WholeGraph* best(const LayerRange& layers, size_t shape, int to_end) const {
    const WholeGraph* best = nullptr;
    for (const WholeGraph& variant : variants_[shape]) {
      if (bytes(variant, layers, to_end) > p_.limit_bytes) continue;
      if (best == nullptr || seconds(variant, layers, shape) < seconds(*best, layers, shape)) best = &variant;
    }
    return best;
  }

  GraphStages result(const InterOpPlan& plan) const {
    GraphStages made;
    made.seconds = plan.seconds;
    IntraOpPlan& operators = made.operators;
    operators.proof = ChoiceProof::kUnproven;  // slices of optimal solutions need not be optimal
    operators.strategies.resize(graph_.operators.size());
    operators.layer_seconds.assign(at(graph_.num_layers), 0);
    operators.layer_state_bytes = operators.layer_activation_bytes = operators.layer_seconds;
    int to_end = static_cast<int>(plan.stages.size());
    for (const InterOpStage& stage : plan.stages) {
      const WholeGraph& variant = *best(stage.layers, at(stage.mesh), to_end);
      made.meshes.push_back(shapes_[at(stage.mesh)]);
      made.layers.push_back(stage.layers);
      made.recompute.push_back(variant.recompute);
      made.bytes.push_back(bytes(variant, stage.layers, to_end--));
      operators.seconds += stage.seconds;
      operators.bytes = std::max(operators.bytes, made.bytes.back());
      for (int i = stage.layers.first; i < stage.layers.last; ++i) {
        operators.layer_seconds[at(i)] = variant.plan.layer_seconds[at(i)];
        operators.layer_state_bytes[at(i)] = variant.plan.layer_state_bytes[at(i)];
        operators.layer_activation_bytes[at(i)] = variant.plan.layer_activation_bytes[at(i)];
      }
      for (size_t o = 0; o < graph_.operators.size(); ++o) {
        const int layer = graph_.operators[o].layer;
        if (layer < stage.layers.first || layer >= stage.layers.last) continue;
        operators.strategies[o] = variant.plan.strategies[o];
      }
    }
    return made;
  }

  const GraphStagesProblem& p_;
  const Graph& graph_;
  const double element_bytes_;
  int units_ = 0;
  std::vector<StageMesh> shapes_;
  std::vector<std::vector<WholeGraph>> variants_;  ///< variants of each mesh shape
  std::vector<double> crossing_;                   ///< bytes that enter each layer
  bool was_refused_ = false;
};

}  // namespace

std::optional<GraphStages> plan_graph_stages(const GraphStagesProblem& problem) { return EqualStages(problem).run(); }

}  // namespace trireme
