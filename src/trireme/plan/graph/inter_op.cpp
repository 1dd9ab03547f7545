#include "trireme/plan/graph/inter_op.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/base/index.h"
#include "trireme/base/units.h"
#include "trireme/plan/graph/choice.h"

namespace trireme {
namespace {

// [Note: Slowest stage]
// For a given bound on the slowest stage, a dynamic program from the last layer minimizes the sum of all stages:
// best(s, k, d) is the least sum of s stages for layers k … end on d units. Bounds are tried in ascending order from
// the smallest feasible one; once (m-1)·bound plus the least sum of all reaches the best plan so far, no larger bound
// can improve on it.
class Search {
 public:
  explicit Search(const InterOpProblem& problem)
      : p_(problem),
        most_(std::min({problem.num_layers, problem.num_units,
                        problem.most_stages > 0 ? problem.most_stages : problem.num_layers})) {
    ask_all();
  }

  std::optional<InterOpPlan> run() {
    std::vector<double> bounds = times_;
    for (double& t : bounds) t = t >= kForbidden ? kNever : t;
    std::sort(bounds.begin(), bounds.end());
    bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
    while (!bounds.empty() && std::isinf(bounds.back())) bounds.pop_back();
    if (bounds.empty() || !solve(bounds.back())) return std::nullopt;
    const double least_sum = sum_;
    // Binary search for the first feasible bound: feasibility is monotone.
    size_t low = 0, high = bounds.size() - 1;
    while (low < high) {
      const size_t middle = (low + high) / 2;
      if (solve(bounds[middle])) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    std::optional<InterOpPlan> best;
    double last = 0;
    for (size_t i = low; i < bounds.size(); ++i) {
      if (best && bounds[i] * (p_.micro_batches - 1) + least_sum >= best->seconds) break;
      const bool is_last = i + 1 == bounds.size();
      if (i > low && !is_last && bounds[i] < last * (1 + p_.tolerance)) continue;
      last = bounds[i];
      if (!solve(bounds[i])) continue;
      InterOpPlan plan{trace(), 0};
      plan.seconds = pipeline_seconds(plan.stages, p_.micro_batches);
      if (!best || plan.seconds < best->seconds) best = std::move(plan);
    }
    return best;
  }

 private:
  size_t time_index(int first, int last, int mesh, int stages) const {
    const size_t layers = at(p_.num_layers), meshes = p_.mesh_units.size();
    return ((at(stages - 1) * meshes + at(mesh)) * layers + at(first)) * (layers + 1) + at(last);
  }
  size_t index(int stages, int layer, int units) const {
    return (at(stages) * at(p_.num_layers + 1) + at(layer)) * at(p_.num_units + 1) + at(units);
  }

  void ask_all() {
    times_.assign(at(most_) * p_.mesh_units.size() * at(p_.num_layers) * at(p_.num_layers + 1), kNever);
    for (int stages = 1; stages <= most_; ++stages) {
      for (int mesh = 0; mesh < static_cast<int>(p_.mesh_units.size()); ++mesh) {
        for (int first = 0; first < p_.num_layers; ++first) {
          for (int last = first + 1; last <= p_.num_layers; ++last) {
            // Leaves layers for the stages after it, and none before it if it is the only one left.
            if (p_.num_layers - last < stages - 1) break;
            times_[time_index(first, last, mesh, stages)] = p_.seconds({first, last}, mesh, stages);
          }
        }
      }
    }
  }

  bool solve(double bound) {
    best_.assign(at(most_ + 1) * at(p_.num_layers + 1) * at(p_.num_units + 1), kNever);
    from_.assign(best_.size(), {-1, -1});
    best_[index(0, p_.num_layers, 0)] = 0;
    for (int stages = 1; stages <= most_; ++stages) {
      for (int first = p_.num_layers - stages; first >= 0; --first) {
        for (int last = first + 1; last <= p_.num_layers - stages + 1; ++last) {
          for (int mesh = 0; mesh < static_cast<int>(p_.mesh_units.size()); ++mesh) {
            const double t = times_[time_index(first, last, mesh, stages)];
            if (t > bound || t >= kForbidden) continue;
            const int own = p_.mesh_units[at(mesh)];
            for (int units = own; units <= p_.num_units; ++units) {
              const double rest = best_[index(stages - 1, last, units - own)];
              double& here = best_[index(stages, first, units)];
              if (t + rest < here) {
                here = t + rest;
                from_[index(stages, first, units)] = {last, mesh};
              }
            }
          }
        }
      }
    }
    sum_ = kNever;
    for (int stages = 1; stages <= most_; ++stages) {
      const double sum = best_[index(stages, 0, p_.num_units)];
      if (sum < sum_) {
        sum_ = sum;
        count_ = stages;
      }
    }
    return sum_ < kNever;
  }

  std::vector<InterOpStage> trace() const {
    std::vector<InterOpStage> stages;
    int first = 0, units = p_.num_units;
    for (int left = count_; left > 0; --left) {
      const auto [last, mesh] = from_[index(left, first, units)];
      stages.push_back({{first, last}, mesh, times_[time_index(first, last, mesh, left)]});
      first = last;
      units -= p_.mesh_units[at(mesh)];
    }
    return stages;
  }

  const InterOpProblem& p_;
  const int most_;
  std::vector<double> times_, best_;
  std::vector<std::pair<int, int>> from_;  ///< end of the stage, and its sub-mesh
  double sum_ = 0;
  int count_ = 0;
};

}  // namespace

double pipeline_seconds(const std::vector<InterOpStage>& stages, int micro_batches) {
  double sum = 0, slowest = 0;
  for (const InterOpStage& stage : stages) {
    sum += stage.seconds;
    slowest = std::max(slowest, stage.seconds);
  }
  return sum + (micro_batches - 1) * slowest;
}

std::optional<InterOpPlan> plan_stages(const InterOpProblem& problem) {
  if (problem.num_layers < 1 || problem.num_units < 1 || problem.micro_batches < 1 || problem.mesh_units.empty()) {
    throw UsageError(fmt::format("{} layers on {} devices in {} micro-batches cannot be planned", problem.num_layers,
                                 problem.num_units, problem.micro_batches),
                     "give at least one of each");
  }
  return Search(problem).run();
}

}  // namespace trireme
