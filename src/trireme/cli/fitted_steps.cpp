#include "trireme/cli/fitted_steps.h"

#include <fmt/format.h>

#include "trireme/base/json.h"
#include "trireme/base/units.h"
#include "trireme/cli/bench_train_report.h"
#include "trireme/observe/table.h"

namespace trireme::cli {
namespace {

std::string off_by(double predicted, double measured) {
  return fmt::format("{:+.1f} %", 100 * (predicted / measured - 1));
}

}  // namespace

std::string steps_text(const std::string& heading, const std::vector<MeasuredStep>& steps, const DeviceFit& fit) {
  Table table({{heading, Align::kLeft},
               {"step ms", Align::kRight},
               {"predicted", Align::kRight},
               {"off by", Align::kRight},
               {"memory", Align::kRight},
               {"predicted", Align::kRight},
               {"off by", Align::kRight}});
  for (size_t i = 0; i < steps.size(); ++i) {
    const MeasuredStep& step = steps[i];
    const FittedStep& fitted = fit.steps[i];
    std::vector<std::string> cells = {step.name, fmt::format("{:.2f}", step.seconds * 1e3),
                                      fmt::format("{:.2f}", fitted.seconds * 1e3),
                                      off_by(fitted.seconds, step.seconds)};
    if (step.memory_bytes > 0) {
      cells.push_back(format_bytes(static_cast<uint64_t>(step.memory_bytes)));
      cells.push_back(format_bytes(static_cast<uint64_t>(fitted.memory_bytes)));
      cells.push_back(off_by(fitted.memory_bytes, step.memory_bytes));
    }
    table.add_row(std::move(cells));
  }
  return table.to_text({.indent = 2});
}

std::string errors_text(const DeviceFit& fit) {
  return fmt::format("step time off by {} on average, {} at most; memory {} and {}", percent(fit.time_error),
                     percent(fit.worst_time_error), percent(fit.memory_error), percent(fit.worst_memory_error));
}

Json steps_json(const std::vector<MeasuredStep>& steps, const DeviceFit& fit) {
  Json list = Json::array();
  for (size_t i = 0; i < steps.size(); ++i) {
    list.push_back({{"training", steps[i].name},
                    {"step_ms", steps[i].seconds * 1e3},
                    {"predicted_ms", fit.steps[i].seconds * 1e3},
                    {"memory_bytes", steps[i].memory_bytes},
                    {"predicted_bytes", fit.steps[i].memory_bytes}});
  }
  return {{"steps", list},
          {"time_error", fit.time_error},
          {"worst_time_error", fit.worst_time_error},
          {"memory_error", fit.memory_error},
          {"worst_memory_error", fit.worst_memory_error}};
}

}  // namespace trireme::cli
