#include "trireme/cli/bench_train_gpu_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/json.h"
#include "trireme/base/units.h"
#include "trireme/cli/bench_train_flops.h"
#include "trireme/cli/bench_train_report.h"
#include "trireme/observe/table.h"

namespace trireme::cli {
namespace {

constexpr const char* kNone = "–";

/// Of the model's own arithmetic; 0 where it is not counted.
double tflops(const BenchTrainCase& measured, double step_ms) {
  return step_ms > 0 ? model_flops(measured.config.model, measured.samples_per_step) / step_ms * 1e-9 : 0;
}

/// Kernels on several streams, and the profiler's own cost, can make it more than the step; 0 where it is not known.
double busy_share(const BenchTrainResult& result) {
  double us = 0;
  for (const auto& [name, kernel_us] : result.kernels_us) us += kernel_us;
  return result.step_ms > 0 ? us / 1000 / result.step_ms : 0;
}

std::string tflops_text(double value) { return value > 0 ? fmt::format("{:.1f}", value) : kNone; }

struct GpuRow {
  std::string name;
  double units_per_second, step_ms, tflops;
  uint64_t memory_bytes;
  double busy;  ///< 0: not known
};

std::vector<GpuRow> rows_of(const BenchTrainRun& run) {
  std::vector<GpuRow> rows;
  for (const size_t i : run.plan.layouts) {
    const BenchTrainCase& measured = run.plan.cases[i];
    const BenchTrainResult& r = run.results[i];
    rows.push_back({measured.name, r.units_per_second, r.step_ms, tflops(measured, r.step_ms), r.device_memory_bytes,
                    busy_share(r)});
  }
  return rows;
}

std::string gpu_speed_table(const BenchTrainRun& run) {
  const bool tokens = run.main_result().unit == "tokens";
  std::vector<Column> columns = {{"", Align::kLeft}};
  std::vector<std::string> headers = {tokens ? "tok/s" : "samples/s", "step ms", "TFLOP/s"};
  if (run.peak_tflops > 0) headers.push_back("of the peak");
  headers.insert(headers.end(), {"GPU memory", "GPU busy"});
  for (const std::string& header : headers) columns.emplace_back(header, Align::kRight);
  Table table(columns);
  for (const GpuRow& row : rows_of(run)) {
    std::vector<std::string> cells = {row.name, per_second_text(row.units_per_second), ms_text(row.step_ms),
                                      tflops_text(row.tflops)};
    if (run.peak_tflops > 0) cells.push_back(row.tflops > 0 ? percent(row.tflops / run.peak_tflops) : kNone);
    cells.push_back(format_bytes(row.memory_bytes));
    cells.push_back(row.busy > 0 ? fmt::format("{:.0f} %", 100 * std::min(1.0, row.busy)) : kNone);
    table.add_row(cells);
  }
  return table.to_text({.indent = 2});
}

/// Whether repeats have the same bits is half of what the modes are about.
std::string losses_text(const BenchTrainRun& run) {
  std::string text;
  for (const size_t i : run.plan.layouts) {
    const BenchTrainResult& r = run.results[i];
    text += fmt::format("{}: loss {:.6f} after the last step", run.plan.cases[i].name, r.loss);
    if (r.each_step_ms.size() > 1) {
      text += r.loss_repeats ? ", the same bits in every repeat" : ", with other bits in some repeats";
    }
    text += "\n";
  }
  return text;
}

}  // namespace

std::string bench_train_gpu_tables(const BenchTrainRun& run) { return gpu_speed_table(run) + "\n" + losses_text(run); }

void add_gpu_fields(Json& json, const BenchTrainRun& run, size_t i) {
  const BenchTrainCase& measured = run.plan.cases[i];
  const BenchTrainResult& r = run.results[i];
  const double speed = tflops(measured, r.step_ms);
  json["device"] = "cuda";
  json["deterministic"] = measured.config.train.deterministic;
  json["parameters"] = r.num_parameters;
  json["device_memory_bytes"] = r.device_memory_bytes;
  json["flops_per_step"] = speed > 0 ? Json(model_flops(measured.config.model, measured.samples_per_step)) : Json();
  json["tflops"] = speed > 0 ? Json(speed) : Json();
  json["peak_tflops"] = run.peak_tflops > 0 ? Json(run.peak_tflops) : Json();
  json["of_peak"] = speed > 0 && run.peak_tflops > 0 ? Json(speed / run.peak_tflops) : Json();
  json["gpu_busy"] = r.kernels_us.empty() ? Json() : Json(busy_share(r));
  json["kernels_us"] = Json::object();
  for (const auto& [name, us] : r.kernels_us) json["kernels_us"][name] = us;
}

void add_gpus(Json& json, const BenchTrainRun& run) {
  json["machine"]["gpus"] = Json::array();
  for (const GpuCard& card : run.gpus) {
    json["machine"]["gpus"].push_back({{"name", card.name},
                                       {"memory_bytes", card.memory_bytes},
                                       {"compute_capability", card.compute_capability},
                                       {"driver", card.driver}});
  }
}

}  // namespace trireme::cli
