#include "trireme/cli/plan_trials.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "trireme/base/deadline.h"
#include "trireme/base/units.h"
#include "trireme/cli/bench_train_measure.h"
#include "trireme/cli/plan_words.h"
#include "trireme/observe/style.h"
#include "trireme/observe/table.h"

namespace trireme::cli {
namespace {

constexpr int kTurns = 2, kTurnsOfTheBest = 3;
constexpr double kTooClose = 0.1;  ///< to the fastest, for so few turns

/// Seconds of a step of each plan, which take turns. Of its turns the quickest, which others disturbed least.
std::vector<double> measure_in_turns(const ConfigArguments& arguments, const Config& config,
                                     const std::vector<const Plan*>& plans, int turns) {
  BenchTrainFlags flags;
  flags.config = arguments;
  flags.steps = 6;
  flags.warmup = 2;
  flags.repeats = turns;
  for (const Plan* plan : plans) flags.cases.emplace_back(plan->layout_text(), words_of_plan(*plan, config));
  const BenchTrainRun run = measure_bench_train(flags, plan_bench_train(flags));
  std::vector<double> seconds;
  for (const size_t training : run.plan.layouts) {  // two plans may come to the same one
    const std::vector<double>& each = run.results[training].each_step_ms;
    seconds.push_back(*std::min_element(each.begin(), each.end()) / 1e3);
  }
  return seconds;
}

}  // namespace

PlanTrials try_plans(const ConfigArguments& arguments, const Config& config, std::span<const Plan> plans) {
  const Clock::time_point start = Clock::now();
  std::vector<const Plan*> all;
  for (const Plan& plan : plans) all.push_back(&plan);
  std::vector<double> seconds = measure_in_turns(arguments, config, all, kTurns);
  const double line = (1 + kTooClose) * *std::min_element(seconds.begin(), seconds.end());
  std::vector<const Plan*> best;
  for (size_t i = 0; i < plans.size(); ++i) {
    if (seconds[i] <= line) best.push_back(all[i]);
  }
  if (best.size() > 1) {
    const std::vector<double> again = measure_in_turns(arguments, config, best, kTurnsOfTheBest);
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

std::string trials_text(const PlanTrials& tried) {
  Table table({{fmt::format("tried in {}", format_duration(tried.seconds)), Align::kLeft},
               "predicted",
               "measured",
               {"", Align::kLeft}});
  for (size_t i = 0; i < tried.trials.size(); ++i) {
    const PlanTrial& trial = tried.trials[i];
    table.add_row({trial.layout, format_duration(trial.predicted_seconds), format_duration(trial.measured_seconds),
                   i == tried.best ? "taken" : ""});
  }
  return table.to_text({.bold_header = has_colour(STDERR_FILENO), .indent = 2});
}

}  // namespace trireme::cli
