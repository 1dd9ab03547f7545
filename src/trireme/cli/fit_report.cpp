#include "trireme/cli/fit_report.h"

#include <fmt/format.h>

#include "trireme/base/json.h"
#include "trireme/base/units.h"
#include "trireme/cli/bench_train_report.h"
#include "trireme/observe/style.h"
#include "trireme/observe/table.h"

namespace trireme::cli {
namespace {

std::string off_by(double predicted, double measured) {
  return fmt::format("{:+.1f} %", 100 * (predicted / measured - 1));
}

/// A row for each step. `heading` is above the names.
std::string steps_text(const std::string& heading, const std::vector<MeasuredStep>& steps, const DeviceFit& fit) {
  Table table({{heading, Align::kLeft}, "step ms", "predicted", "off by", "memory", "predicted", "off by"});
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

/// "step time off by 3.1 % on average, 6.2 % at most; memory 1.0 % and 2.2 %"
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

/// What a calibration of cores adds.
std::string cores_text(const Cluster& cluster) {
  if (cluster.shared_cores == 0) return "";
  return fmt::format(
      "  {} of that by convolutions, {} of the bandwidth by the optimizer; {:.1f} bytes per parameter move for each "
      "micro-batch,\n"
      "  {:.1f} µs more between operators on tensors in parts, {} of a core lost where workers share it\n",
      percent(cluster.device.convolution_efficiency), percent(cluster.device.update_efficiency),
      cluster.stack.accumulation_bytes, cluster.stack.tensor_us, percent(cluster.sharing_cost));
}

}  // namespace

std::string probe_text(const measure::DeviceProbe& probe, bool colour) {
  Table products({{"product", Align::kLeft}, "type", "TFLOP/s"});
  for (const measure::ProbedProduct& p : probe.products) {
    products.add_row({fmt::format("{} x {} x {}", p.m, p.n, p.k), p.type,
                      p.tflops < 10 ? fmt::format("{:.3f}", p.tflops) : fmt::format("{:.0f}", p.tflops)});
  }
  const Device& device = probe.cluster.device;
  return fmt::format("{}\n{}\n  memory {:.0f} GB/s · an operator starts every {:.1f} µs\n",
                     emphasised(fmt::format("what {} reaches", device.name), Emphasis::kBold, colour),
                     products.to_text({.indent = 2}), device.memory_bandwidth / 1e9, probe.launch_us);
}

std::string calibration_text(const measure::Calibration& calibration, bool colour) {
  const Device& device = calibration.fit.cluster.device;
  const Stack& stack = calibration.fit.cluster.stack;
  return fmt::format(
      "{}\n{}\n"
      "  reached in trainings: {} of the peak by products (half of it at depth {:.0f}), {} by attention, {} of the "
      "bandwidth,\n"
      "  {:.1f} µs between operators, {:.2f} ms a step · activations {:.2f} of the formula's, {:.2f} GB besides\n"
      "{}"
      "  {}\n"
      "written to {}: trireme simulate --cluster {}\n",
      probe_text(calibration.probe, colour), steps_text("training", calibration.steps, calibration.fit),
      percent(device.product_efficiency), device.product_half_depth, percent(device.attention_efficiency),
      percent(device.memory_efficiency), device.kernel_us, device.step_seconds * 1e3, stack.activation_share,
      stack.fixed_bytes / 1e9, cores_text(calibration.fit.cluster), errors_text(calibration.fit),
      calibration.path.string(), calibration.path.string());
}

Json calibration_json(const measure::Calibration& calibration) {
  Json json = {{"file", calibration.path.string()}};
  json.update(device_json(calibration.probe, calibration.fit.cluster));
  json.update(steps_json(calibration.steps, calibration.fit));
  return json;
}

std::string comparison_text(const measure::RunComparison& comparison) {
  std::string text = steps_text("run", comparison.runs, comparison.before) + "\n  " + errors_text(comparison.before);
  if (!comparison.after) {
    return text + fmt::format("\n  --write-cluster FILE corrects the constants of {} by that\n",
                              comparison.before.cluster.name);
  }
  return fmt::format("{}\n\nwith corrected constants\n{}\n  {}\nwritten to {}: trireme simulate --cluster {}\n", text,
                     steps_text("run", comparison.runs, *comparison.after), errors_text(*comparison.after),
                     comparison.path.string(), comparison.path.string());
}

std::string comparison_json(const measure::RunComparison& comparison) {
  Json json = {{"cluster", comparison.before.cluster.name}};
  json["before"] = steps_json(comparison.runs, comparison.before);
  if (comparison.after) {
    json["after"] = steps_json(comparison.runs, *comparison.after);
    json["file"] = comparison.path.string();
  }
  return json.dump(2);
}

}  // namespace trireme::cli
