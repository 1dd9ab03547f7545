#include "trireme/plan/graph/uneven.h"

#include <algorithm>

#include "trireme/base/index.h"
#include "trireme/simulate/memory_model.h"

namespace trireme {
namespace {

constexpr int kMostLayerGroups = 24;  ///< layer groups that stages are made of, if there are many devices
constexpr int kManyDevices = 64;      ///< from this number on only whole hosts are assigned
constexpr double kTolerance = 0.01;

StageSetting setting_of(const Job& job) {
  const Layout& l = job.layout;
  const StateBytes whole = state_bytes(job), none = sharded(whole, l.zero, 1e18);
  StageSetting setting;
  setting.type = l.compute;
  setting.gradient_bytes = l.gradient_bytes();
  setting.state_bytes = whole.sum();
  setting.sharded_state_bytes = whole.sum() - none.sum();
  setting.micro_batches = static_cast<double>(l.accumulation());
  setting.sums_each_micro_batch = l.zero >= 2;
  setting.recompute = l.recompute.kind;
  return setting;
}

/// One layout of a sub-mesh, with prefix sums over layers.
struct SubMeshWay {
  int64_t dp = 1, tp = 1;
  std::vector<double> seconds, states, activations;
};

std::vector<double> running_sums(const std::vector<double>& values) {
  std::vector<double> sums = {0};
  for (const double value : values) sums.push_back(sums.back() + value);
  return sums;
}

/// Whether the last axis shards any weight of a block; otherwise it only adds replicas.
bool cuts_weights(const Graph& graph, const IntraOpPlan& plan) {
  for (size_t o = 0; o < graph.operators.size(); ++o) {
    const GraphOperator& op = graph.operators[o];
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (graph.tensors[at(op.inputs[i])].is_parameter && plan.strategies[o].inputs[i].back().is_shard()) return true;
    }
  }
  return false;
}

class UnevenStages {
 public:
  explicit UnevenStages(const UnevenProblem& problem) : p_(problem) {
    unit_ = p_.num_devices > kManyDevices && p_.num_devices % p_.cluster.devices_per_host == 0
                ? p_.cluster.devices_per_host
                : 1;
    const int layers = p_.graph->num_layers;
    const int each = unit_ > 1 ? (layers + kMostLayerGroups - 1) / kMostLayerGroups : 1;
    for (int layer = 0; layer < layers; layer += each) groups_.push_back(layer);
    groups_.push_back(layers);
    for (int64_t devices = unit_; devices <= p_.num_devices; devices *= 2) {
      meshes_.push_back(static_cast<int>(devices / unit_));
      add_variants(devices);
    }
  }

  std::optional<Layout> run() {
    InterOpProblem problem;
    problem.num_layers = static_cast<int>(groups_.size()) - 1;
    problem.num_units = static_cast<int>(p_.num_devices / unit_);
    problem.mesh_units = meshes_;
    problem.micro_batches = static_cast<int>(p_.job.layout.accumulation());
    problem.tolerance = kTolerance;
    problem.seconds = [&](const LayerRange& range, int mesh, int to_end) {
      const SubMeshWay* variant = best_variant(range, mesh, to_end);
      return variant ? seconds(*variant, range) : kForbidden;
    };
    const std::optional<InterOpPlan> plan = plan_stages(problem);
    if (!plan) return std::nullopt;
    Layout layout = p_.job.layout;
    layout.schedule = ScheduleKind::k1F1B;
    layout.interleave = 1;
    layout.stages.clear();
    layout.split.clear();
    const int count = static_cast<int>(plan->stages.size());
    const int64_t samples = layout.micro_batch * layout.dp;
    for (int i = 0; i < count; ++i) {
      const InterOpStage& stage = plan->stages[at(i)];
      const SubMeshWay& variant = *best_variant(stage.layers, stage.mesh, count - i);
      layout.split.push_back({groups_[at(stage.layers.first)], groups_[at(stage.layers.last)]});
      layout.stages.push_back({variant.dp, variant.tp});
    }
    layout.pp = count;
    const bool alike = std::ranges::count(layout.stages, layout.stages[0]) == count;
    layout.dp = num_lanes(layout.stages);
    layout.tp = alike ? layout.stages[0].tp : 1;
    if (alike) layout.stages.clear();
    layout.micro_batch = samples / layout.dp;
    layout.sequence = false;
    return layout;
  }

 private:
  void add_variants(int64_t devices) {
    std::vector<SubMeshWay> variants;
    const int64_t samples = p_.job.layout.micro_batch * p_.job.layout.dp;
    for (int64_t tp = 1; tp <= std::min<int64_t>(devices, p_.cluster.devices_per_host); tp *= 2) {
      const int64_t dp = devices / tp;
      if (samples % dp != 0 || (p_.job.model.is_language() && p_.job.model.heads % tp != 0)) continue;
      IntraOpProblem problem{p_.graph, p_.cluster, {{static_cast<int>(dp), static_cast<int>(tp)}}, setting_of(p_.job)};
      for (const double limit : {0.0, 0.5}) {  // without a limit, and with half of the memory that this takes
        problem.limit_bytes = limit > 0 && !variants.empty() ? limit * last_bytes_ : 0;
        if (limit > 0 && problem.limit_bytes <= 0) continue;
        const IntraOpPlan plan = plan_operators(problem);
        if (plan.proof == ChoiceProof::kInfeasible) continue;
        last_bytes_ = plan.bytes;
        SubMeshWay variant{dp, tp, running_sums(plan.layer_seconds), running_sums(plan.layer_state_bytes),
                           running_sums(plan.layer_activation_bytes)};
        if (tp > 1 && !cuts_weights(*p_.graph, plan)) {
          if (samples % devices != 0) continue;
          variant.dp = devices;
          variant.tp = 1;
        }
        variants.push_back(std::move(variant));
      }
    }
    variants_.push_back(std::move(variants));
  }

  double over(const std::vector<double>& sums, const LayerRange& range) const {
    return sums[at(groups_[at(range.last)])] - sums[at(groups_[at(range.first)])];
  }
  double seconds(const SubMeshWay& variant, const LayerRange& range) const { return over(variant.seconds, range); }

  const SubMeshWay* best_variant(const LayerRange& range, int mesh, int to_end) const {
    const SubMeshWay* best = nullptr;
    const double in_flight = std::min<double>(to_end, static_cast<double>(p_.job.layout.accumulation()));
    for (const SubMeshWay& variant : variants_[at(mesh)]) {
      const double bytes = over(variant.states, range) + in_flight * over(variant.activations, range);
      if (bytes > p_.cluster.device.memory_bytes) continue;
      if (best == nullptr || seconds(variant, range) < seconds(*best, range)) best = &variant;
    }
    return best;
  }

  const UnevenProblem& p_;
  int64_t unit_ = 1;
  std::vector<int> groups_, meshes_;
  std::vector<std::vector<SubMeshWay>> variants_;
  double last_bytes_ = 0;
};

}  // namespace

std::optional<Layout> plan_uneven(const UnevenProblem& problem) { return UnevenStages(problem).run(); }

}  // namespace trireme
