#include "trireme/cli/plan_words.h"

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/units.h"
#include "trireme/cli/plan_trials.h"
#include "trireme/config/value.h"
#include "trireme/plan/graph/graph_plan.h"
#include "trireme/plan/plan_check.h"

namespace trireme::cli {
namespace {

Config without_plan(Config config) {
  config.parallel.plan.clear();
  return config;
}

std::string told_of(const Plan& plan, const std::string& how) {
  return fmt::format("{} for {}: {} · predicted {} a step, {} a worker", how, spoken_name(plan.cluster),
                     plan.layout_text(), format_duration(plan.predicted.step_seconds),
                     format_bytes(static_cast<uint64_t>(plan.predicted.memory_bytes_per_gpu)));
}

/// With what is predicted of the keys now: the file's own numbers are of those it was made for.
PlannedTraining planned_by_file(Plan plan, const Config& config, int num_workers) {
  const Config planned = check_plan_keys(plan, without_plan(config), num_workers, config.parallel.plan);
  PlannedTraining training{words_of_plan(plan, config), "", {}};
  try {
    plan.predicted = prediction_of(simulate_plan(planned, clusters_of(plan)));
  } catch (const UsageError& error) {  // a cluster file that is elsewhere, or types that those devices do not have
    const std::string_view why = error.what();
    training.told = fmt::format("planned for {}: {} · not predicted: {}", plan.cluster, plan.layout_text(),
                                why.substr(0, why.find('\n')));
    return training;
  }
  training.predicted = plan.predicted;
  training.told = told_of(plan, "planned");
  if (!plan.predicted.fits) {
    training.told += fmt::format(", more than the {} of a device there",
                                 format_bytes(static_cast<uint64_t>(plan.predicted.memory_limit_bytes)));
  }
  return training;
}

}  // namespace

std::vector<std::string> words_of_plan(const Plan& plan, const Config& config) {
  Config planned = without_plan(config);
  apply_plan(plan, planned);
  std::vector<std::string> words;
  for (const Key& key : keys()) {
    const Value value = get_value(planned, key);
    if (value == get_value(config, key)) continue;
    const auto* text = std::get_if<std::string>(&value);
    words.push_back(fmt::format("--{}={}", key.full_name(), text ? *text : format_value(value)));
  }
  return words;
}

PlannedTraining plan_words(const ConfigArguments& arguments, const Config& config, int num_workers) {
  if (config.parallel.plan != "auto" && config.parallel.plan != "try") {
    return planned_by_file(read_plan(config.parallel.plan), config, num_workers);
  }
  PlanOptions options;
  options.explain = false;
  options.num_finalists = config.parallel.plan == "try" ? kUsualTrials : 0;
  PlanReport report =
      explain_plan(without_plan(config), cluster_at_hand(config.train.device == "cuda" ? "h100-80gb" : "laptop"),
                   num_workers, options);
  if (config.parallel.plan == "auto") {
    return {words_of_plan(report.plan, config), told_of(report.plan, "planned"), report.plan.predicted};
  }
  const PlanTrials trials = try_plans(arguments, config, report.finalists);
  const Plan& best = report.finalists[trials.best];
  return {words_of_plan(best, config), told_of(best, "planned and tried") + "\n" + trials_text(trials), best.predicted};
}

}  // namespace trireme::cli
