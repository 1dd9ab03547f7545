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

PlanTrials try_plans(const ConfigArguments& arguments, const Config& config, std::span<const Plan> plans) {
  BenchTrainFlags flags;
  flags.config = arguments;
  flags.steps = 6;
  flags.warmup = 2;
  flags.repeats = 2;
  for (const Plan& plan : plans) flags.cases.emplace_back(plan.layout_text(), words_of_plan(plan, config));
  const Clock::time_point start = Clock::now();
  const BenchTrainRun run = measure_bench_train(flags, plan_bench_train(flags));
  PlanTrials tried;
  for (size_t i = 0; i < plans.size(); ++i) {
    // Two plans may come to the same training: it has been measured once. The quicker of its turns is the one that
    // others disturbed less.
    const std::vector<double>& turns = run.results[run.plan.layouts[i]].each_step_ms;
    tried.trials.push_back(
        {plans[i].layout_text(), plans[i].predicted.step_seconds, *std::min_element(turns.begin(), turns.end()) / 1e3});
    if (tried.trials[i].measured_seconds < tried.trials[tried.best].measured_seconds) tried.best = i;
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
