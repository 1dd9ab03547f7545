#include "trireme/cli/plan_words.h"

#include <fmt/format.h>

#include "trireme/base/units.h"
#include "trireme/cli/plan_trials.h"
#include "trireme/config/value.h"
#include "trireme/plan/graph_plan.h"

namespace trireme::cli {
namespace {

std::string told_of(const Plan& plan, const std::string& how) {
  return fmt::format("{} for {}: {} · predicted {} a step, {} a worker", how, spoken_name(plan.cluster),
                     plan.layout_text(), format_duration(plan.predicted.step_seconds),
                     format_bytes(static_cast<uint64_t>(plan.predicted.memory_bytes_per_gpu)));
}

}  // namespace

std::vector<std::string> words_of_plan(const Plan& plan, const Config& config) {
  Config planned = config;
  planned.parallel.plan.clear();
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

std::vector<std::string> plan_words(const ConfigArguments& arguments, const Config& config, int num_workers,
                                    std::string& told) {
  Config planned = config;
  planned.parallel.plan.clear();
  if (config.parallel.plan != "auto" && config.parallel.plan != "try") {
    const Plan plan = read_plan(config.parallel.plan);
    check_plan(plan, planned, num_workers);
    told = told_of(plan, "planned");
    return words_of_plan(plan, config);
  }
  PlanOptions options;
  options.explain = false;
  options.num_finalists = config.parallel.plan == "try" ? kUsualTrials : 0;
  PlanReport report = explain_plan(planned, cluster_at_hand(config.train.device == "cuda" ? "h100-80gb" : "laptop"),
                                   num_workers, options);
  if (config.parallel.plan == "auto") {
    told = told_of(report.plan, "planned");
    return words_of_plan(report.plan, config);
  }
  const PlanTrials trials = try_plans(arguments, config, report.finalists);
  const Plan& best = report.finalists[trials.best];
  told = told_of(best, "planned and tried") + "\n" + trials_text(trials);
  return words_of_plan(best, config);
}

}  // namespace trireme::cli
