#include "trireme/simulate/fit_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/simulate/simulate.h"

namespace trireme {
namespace {

/// A constant that is fitted in log space between two bounds.
struct Knob {
  double* value;
  double least, most;
};

bool has_tensor_ranks(const MeasuredStep& step) { return step.job.layout.tp > 1; }
bool has_gates(const MeasuredStep& step) { return step.job.model.kind == ModelKind::kLlama; }

/// Returns the constants that the steps can identify.
std::vector<Knob> time_knobs(Cluster& cluster, const std::vector<MeasuredStep>& steps) {
  Device& d = cluster.device;
  std::vector<Knob> knobs = {{&d.product_efficiency, 0.02, 1},
                             {&d.product_half_depth, 1, 4000},
                             {&d.memory_efficiency, 0.02, 1},
                             {&d.attention_efficiency, 0.01, 1},
                             {&d.kernel_us, cluster.shared_cores > 0 ? 0.8 * d.kernel_us : 0.05, 200},
                             {&d.step_seconds, 1e-5, 1}};
  const auto add_if_any = [&](auto tells, const Knob& knob, double start) {
    if (std::none_of(steps.begin(), steps.end(), tells)) return;
    if (*knob.value <= 0) *knob.value = start;
    knobs.push_back(knob);
  };
  add_if_any([](const MeasuredStep& s) { return s.job.model.kind == ModelKind::kResNet; },
             {&d.convolution_efficiency, 0.05, 1}, 0.7);
  add_if_any(has_gates, {&cluster.stack.gated_traffic, 0.1, 20}, 1);
  add_if_any(has_tensor_ranks, {&cluster.stack.tensor_us, 0.01, 200}, 3);
  add_if_any([&](const MeasuredStep& s) { return s.job.layout.accumulation() > 1; },
             {&cluster.stack.accumulation_bytes, 0.1, 64}, 8);
  add_if_any(
      [&](const MeasuredStep& s) {
        return cluster.shared_cores > 0 && s.job.layout.num_devices() > cluster.shared_cores;
      },
      {&cluster.sharing_cost, 0.001, 0.5}, 0.05);
  if (cluster.shared_cores > 0) {
    knobs.push_back({&d.update_efficiency, 0.02, 4});
    knobs.push_back({&cluster.stack.loss_traffic, 0.1, 20});
  }
  return knobs;
}

std::vector<Knob> memory_knobs(Cluster& cluster, const std::vector<MeasuredStep>& steps) {
  Stack& s = cluster.stack;
  std::vector<Knob> knobs = {{&s.activation_share, 0.05, 5}};
  const auto add = [&](const Knob& knob, double start) {
    if (*knob.value <= 0) *knob.value = start;
    knobs.push_back(knob);
  };
  if (std::any_of(steps.begin(), steps.end(), has_gates)) add({&s.gated_share, 0.05, 10}, s.activation_share);
  add({&s.logit_bytes, 0.01, 24}, 4);
  add({&s.parameter_bytes, 0.01, 16}, 1);
  add({&s.fixed_bytes, 1e6, 8e9}, 2e8);
  if (cluster.shared_cores == 0) return knobs;
  add({&s.embedding_bytes, 0.01, 64}, 4);
  add({&s.tensor_bytes, 0.01, 64}, 4);
  if (std::any_of(steps.begin(), steps.end(), has_tensor_ranks)) add({&s.tensor_rank_bytes, 1e4, 1e9}, 4e6);
  return knobs;
}

/// Weight of the pull to the start: an error of 0.3 % outweighs a change by a factor of e.
constexpr double kPullToStart = 0.003;
/// On CPUs the formulas miss library memory by several percent, and a prediction that is too low runs out of memory. So
/// an underestimate weighs this many times an overestimate.
constexpr double kTooLittle = 3;

/// Minimizes the sum of squared errors over the logarithms of the constants: Levenberg–Marquardt.
class Fitter {
 public:
  Fitter(const Cluster& cluster, const std::vector<MeasuredStep>& steps, std::vector<Knob> knobs, bool of_memory)
      : cluster_(cluster), steps_(steps), knobs_(std::move(knobs)), of_memory_(of_memory) {
    for (const Knob& knob : knobs_) {
      *knob.value = std::clamp(*knob.value, knob.least, knob.most);
      start_.push_back(std::log(*knob.value));
    }
  }

  void run() {
    std::vector<double> at = start_, errors = errors_at(at);
    double damping = 1e-2;
    for (int round = 0; round < kRounds && damping < kMostDamping; ++round) {
      const auto slopes = slopes_at(at, errors);
      for (bool improved = false; !improved && damping < kMostDamping;) {
        std::vector<double> next = at;
        const std::vector<double> move = solve(slopes, errors, damping);
        for (size_t i = 0; i < at.size(); ++i) next[i] = bounded(i, at[i] + std::clamp(move[i], -kMostMove, kMostMove));
        const std::vector<double> reached = errors_at(next);
        improved = sum_of_squares(reached) < sum_of_squares(errors) * (1 - 1e-9);
        damping = improved ? damping / 4 : damping * 4;
        if (!improved) continue;
        at = next;
        errors = reached;
      }
    }
    errors_at(at);  // leaves the knobs at the solution
  }

 private:
  static constexpr int kRounds = 60;
  static constexpr double kMostDamping = 1e6, kMostMove = 0.7, kStep = 0.01;

  double bounded(size_t i, double logarithm) const {
    return std::clamp(logarithm, std::log(knobs_[i].least), std::log(knobs_[i].most));
  }

  /// Residuals: log(predicted / measured), and the distance of each knob from its start.
  std::vector<double> errors_at(const std::vector<double>& logarithms) {
    for (size_t i = 0; i < knobs_.size(); ++i) *knobs_[i].value = std::exp(logarithms[i]);
    std::vector<double> errors;
    for (const MeasuredStep& step : steps_) {
      const double measured = of_memory_ ? step.memory_bytes : step.seconds;
      if (measured <= 0) continue;
      const Simulation s = simulate(step.job, cluster_);
      const double error = std::log((of_memory_ ? s.memory_bytes() : s.step_seconds) / measured);
      const bool is_too_little = of_memory_ && error < 0 && cluster_.shared_cores > 0;
      errors.push_back(is_too_little ? kTooLittle * error : error);
    }
    for (size_t i = 0; i < knobs_.size(); ++i) errors.push_back(kPullToStart * (logarithms[i] - start_[i]));
    return errors;
  }

  /// Jacobian of the residuals by finite differences, taken inwards if a knob is at its bound.
  std::vector<std::vector<double>> slopes_at(const std::vector<double>& at, const std::vector<double>& errors) {
    std::vector<std::vector<double>> slopes;
    for (size_t i = 0; i < knobs_.size(); ++i) {
      std::vector<double> moved = at;
      moved[i] = bounded(i, at[i] + kStep);
      if (moved[i] == at[i]) moved[i] = at[i] - kStep;
      std::vector<double> slope = errors_at(moved);
      for (size_t k = 0; k < slope.size(); ++k) slope[k] = (slope[k] - errors[k]) / (moved[i] - at[i]);
      slopes.push_back(std::move(slope));
    }
    return slopes;
  }

  /// Solves (JᵀJ + damping·diag)·x = -Jᵀe by Gaussian elimination.
  static std::vector<double> solve(const std::vector<std::vector<double>>& slopes, const std::vector<double>& errors,
                                   double damping) {
    const size_t n = slopes.size();
    const auto dot = [](const std::vector<double>& a, const std::vector<double>& b) {
      return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
    };
    std::vector<std::vector<double>> rows(n, std::vector<double>(n + 1));
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) rows[i][j] = dot(slopes[i], slopes[j]);
      rows[i][i] += damping * (rows[i][i] + 1e-9);
      rows[i][n] = -dot(slopes[i], errors);
    }
    for (size_t i = 0; i < n; ++i) {  // positive definite: no pivoting needed
      for (size_t j = 0; j < n; ++j) {
        if (j == i) continue;
        const double factor = rows[j][i] / rows[i][i];
        for (size_t k = i; k <= n; ++k) rows[j][k] -= factor * rows[i][k];
      }
    }
    std::vector<double> x;
    for (size_t i = 0; i < n; ++i) x.push_back(rows[i][n] / rows[i][i]);
    return x;
  }

  static double sum_of_squares(const std::vector<double>& values) {
    return std::inner_product(values.begin(), values.end(), values.begin(), 0.0);
  }

  const Cluster& cluster_;  ///< modified through the knobs
  const std::vector<MeasuredStep>& steps_;
  const std::vector<Knob> knobs_;
  const bool of_memory_;
  std::vector<double> start_;
};

}  // namespace

DeviceFit compare_with(const Cluster& cluster, const std::vector<MeasuredStep>& steps) {
  DeviceFit fit;
  fit.cluster = cluster;
  double times = 0, memories = 0;
  for (const MeasuredStep& step : steps) {
    const Simulation s = simulate(step.job, cluster);
    fit.steps.push_back({s.step_seconds, s.memory_bytes()});
    const double time_error = std::abs(s.step_seconds / step.seconds - 1);
    fit.time_error += time_error;
    fit.worst_time_error = std::max(fit.worst_time_error, time_error);
    ++times;
    if (step.memory_bytes <= 0) continue;
    const double memory_error = std::abs(s.memory_bytes() / step.memory_bytes - 1);
    fit.memory_error += memory_error;
    fit.worst_memory_error = std::max(fit.worst_memory_error, memory_error);
    ++memories;
  }
  if (times > 0) fit.time_error /= times;
  if (memories > 0) fit.memory_error /= memories;
  return fit;
}

DeviceFit fit_device(const Cluster& start, const std::vector<MeasuredStep>& steps) {
  if (steps.empty()) throw UsageError("no training was measured: there is nothing to fit constants to");
  bool has_memory = false;
  for (const MeasuredStep& step : steps) {
    if (!(step.seconds > 0))
      throw UsageError(fmt::format("{}: a step of {} s was not measured", step.name, step.seconds));
    has_memory |= step.memory_bytes > 0;
  }
  Cluster cluster = start;
  Fitter(cluster, steps, time_knobs(cluster, steps), false).run();
  if (has_memory) Fitter(cluster, steps, memory_knobs(cluster, steps), true).run();
  DeviceFit fit = compare_with(cluster, steps);
  fit.cluster.evidence = {static_cast<int>(steps.size()), fit.time_error, fit.worst_time_error};
  return fit;
}

}  // namespace trireme
