#include "trireme/plan/graph/stage_recompute.h"

#include <algorithm>
#include <array>

#include "trireme/base/index.h"
#include "trireme/plan/graph/choice.h"
#include "trireme/plan/graph/inter_op.h"
#include "trireme/simulate/block_cost.h"
#include "trireme/simulate/memory_model.h"

namespace trireme {
namespace {

constexpr double kRecomputeTolerance = 0.01;
constexpr int64_t kMostStages = 32, kMostLayers = 200;  ///< beyond these sizes the search takes longer than it saves

/// Prefix sums over blocks, with or without recomputation.
struct Way {
  std::vector<double> seconds = {0}, states = {0}, activations = {0};
  std::vector<double> working;  ///< workspace of each block
};

class RecomputeChoice {
 public:
  RecomputeChoice(const Job& job, const Cluster& cluster) : job_(job), limit_(cluster.device.memory_bytes) {
    const Layout& l = job.layout;
    const StateBytes states = sharded(held_bytes(job), l.zero, static_cast<double>(l.num_shards()));
    for (const bool again : {false, true}) {
      Job own = job;
      own.layout.recompute = again ? RecomputeKind::kFull : RecomputeKind::kNone;
      Way& way = ways_[again];
      for (const BlockCost& block : block_costs(own, cluster)) {
        way.seconds.push_back(way.seconds.back() + block.forward + block.backward_input + block.backward_weight);
        way.states.push_back(way.states.back() + block.parameters * states.sum());
        way.activations.push_back(way.activations.back() + block.activation_bytes);
        way.working.push_back(block.working_bytes);
      }
    }
    fixed_ = cluster.stack.fixed_bytes;
  }

  std::optional<Layout> run() const {
    InterOpProblem problem;
    problem.num_layers = static_cast<int>(ways_[0].working.size());
    problem.num_units = problem.most_stages = static_cast<int>(job_.layout.pp);
    problem.mesh_units = {1};
    problem.micro_batches = static_cast<int>(job_.layout.accumulation());
    problem.tolerance = kRecomputeTolerance;
    problem.seconds = [&](const LayerRange& range, int, int to_end) {
      const Way* way = best(range, to_end);
      return way ? over(way->seconds, range) : kForbidden;
    };
    const std::optional<InterOpPlan> plan = plan_stages(problem);
    if (!plan) return std::nullopt;
    Layout layout = job_.layout;
    layout.recompute = RecomputeKind::kNone;
    layout.stages.clear();
    layout.split.clear();
    int64_t to_end = layout.pp, kept = 0;
    for (const InterOpStage& stage : plan->stages) {
      layout.split.push_back(stage.layers);
      // Embedding and output layer cannot be recomputed.
      const int64_t first = std::max(0, stage.layers.first - 1);
      const int64_t last = std::min<int64_t>(stage.layers.last - 2, job_.model.layers - 1);
      const Way* way = best(stage.layers, static_cast<int>(to_end--));
      if (first > last) continue;
      if (way == &ways_[0]) {
        ++kept;
      } else if (!layout.recompute.ranges.empty() && layout.recompute.ranges.back().second + 1 == first) {
        layout.recompute.ranges.back().second = last;
      } else {
        layout.recompute.ranges.emplace_back(first, last);
      }
    }
    if (layout.recompute.ranges.empty() || kept == 0) return std::nullopt;
    return layout;
  }

 private:
  static double over(const std::vector<double>& sums, const LayerRange& range) {
    return sums[at(range.last)] - sums[at(range.first)];
  }

  double bytes(const Way& way, const LayerRange& range, int to_end) const {
    const double in_flight = std::min<double>(to_end, static_cast<double>(job_.layout.accumulation()));
    const double working = *std::max_element(way.working.begin() + range.first, way.working.begin() + range.last);
    return fixed_ + over(way.states, range) + in_flight * over(way.activations, range) + working;
  }

  /// Keeping activations is faster wherever they fit.
  const Way* best(const LayerRange& range, int to_end) const {
    for (const Way& way : ways_) {
      if (bytes(way, range, to_end) <= limit_) return &way;
    }
    return nullptr;
  }

  const Job& job_;
  const double limit_;
  double fixed_ = 0;
  std::array<Way, 2> ways_;  ///< kept, recomputed
};

}  // namespace

bool can_recompute_by_stage(const Job& job) {
  const Layout& l = job.layout;
  return l.pp > 1 && l.interleave == 1 && l.schedule == ScheduleKind::k1F1B && !l.own_schedule &&
         job.model.is_language() && l.pp <= kMostStages && job.model.layers <= kMostLayers;
}

std::optional<Layout> plan_stage_recompute(const Job& job, const Cluster& cluster) {
  return RecomputeChoice(job, cluster).run();
}

}  // namespace trireme
