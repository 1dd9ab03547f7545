#include "trireme/cli/plan_words.h"

#include <fmt/format.h>

#include "trireme/base/units.h"
#include "trireme/config/value.h"
#include "trireme/plan/graph_plan.h"
#include "trireme/plan/search.h"

namespace trireme::cli {

std::vector<std::string> plan_words(const Config& config, int num_workers, std::string& told) {
  Config planned = config;
  planned.parallel.plan.clear();
  Plan plan;
  if (config.parallel.plan == "auto") {
    PlanOptions options;
    options.explain = false;
    plan = make_plan(planned, cluster_at_hand(config.train.device == "cuda" ? "h100-80gb" : "laptop"), num_workers,
                     options);
  } else {
    plan = read_plan(config.parallel.plan);
    check_plan(plan, planned, num_workers);
  }
  apply_plan(plan, planned);
  told = fmt::format("planned for {}: {} · predicted {} a step, {} a worker", plan.cluster, plan.layout_text(),
                     format_duration(plan.predicted.step_seconds),
                     format_bytes(static_cast<uint64_t>(plan.predicted.memory_bytes_per_gpu)));
  std::vector<std::string> words;
  for (const Key& key : keys()) {
    const Value value = get_value(planned, key);
    if (value == get_value(config, key)) continue;
    const auto* text = std::get_if<std::string>(&value);
    words.push_back(fmt::format("--{}={}", key.full_name(), text ? *text : format_value(value)));
  }
  return words;
}

}  // namespace trireme::cli
