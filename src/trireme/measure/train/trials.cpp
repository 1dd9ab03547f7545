#include "trireme/measure/train/trials.h"

#include <algorithm>

#include "trireme/base/deadline.h"
#include "trireme/measure/train/trainings.h"

namespace trireme::measure {
namespace {

constexpr int kTurns = 2, kTurnsOfTheBest = 3;
constexpr double kTooClose = 0.1;  ///< to the fastest, for so few turns

/// Seconds of a step of each plan, which take turns. Of its turns the quickest, which others disturbed least.
std::vector<double> measure_in_turns(const Config& config, const std::vector<const Plan*>& plans, int turns) {
  TrainOptions options;
  options.steps = 6;
  options.warmup = 2;
  options.repeats = turns;
  for (const Plan* plan : plans) {
    Config planned = config;
    apply_plan(*plan, planned);
    options.cases.emplace_back(plan->layout_text(), std::move(planned));
  }
  const TrainRun run = measure_trainings(options, plan_trainings(options));
  std::vector<double> seconds;
  for (const size_t training : run.plan.layouts) {  // two plans may come to the same one
    const std::vector<double>& each = run.results[training].each_step_ms;
    seconds.push_back(*std::min_element(each.begin(), each.end()) / 1e3);
  }
  return seconds;
}

}  // namespace

PlanTrials try_plans(const Config& config, std::span<const Plan> plans) {
  const Clock::time_point start = Clock::now();
  std::vector<const Plan*> all;
  for (const Plan& plan : plans) all.push_back(&plan);
  std::vector<double> seconds = measure_in_turns(config, all, kTurns);
  const double line = (1 + kTooClose) * *std::min_element(seconds.begin(), seconds.end());
  std::vector<const Plan*> best;
  for (size_t i = 0; i < plans.size(); ++i) {
    if (seconds[i] <= line) best.push_back(all[i]);
  }
  if (best.size() > 1) {
    const std::vector<double> again = measure_in_turns(config, best, kTurnsOfTheBest);
    for (size_t i = 0; i < best.size(); ++i) {
      double& known = seconds[static_cast<size_t>(best[i] - plans.data())];
      known = std::min(known, again[i]);
    }
  }
  PlanTrials tried;
  for (size_t i = 0; i < plans.size(); ++i) {
    tried.trials.push_back({plans[i].layout_text(), plans[i].predicted.step_seconds, seconds[i]});
    if (seconds[i] < seconds[tried.best]) tried.best = i;
  }
  tried.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return tried;
}

}  // namespace trireme::measure
