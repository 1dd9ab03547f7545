#include "trireme/cli/bench_train_gpu_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/json.h"
#include "trireme/base/units.h"
#include "trireme/cli/bench_train_flops.h"
#include "trireme/cli/bench_train_report.h"
#include "trireme/observe/style.h"
#include "trireme/observe/table.h"

namespace trireme::cli {
namespace {

constexpr const char* kNone = "–";

/// Of the model's own arithmetic; 0 where it is not counted.
double tflops(const BenchTrainCase& measured, double step_ms) {
  return step_ms > 0 ? model_flops(measured.config.model, measured.samples_per_step) / step_ms * 1e-9 : 0;
}

/// Kernels on several streams, and the profiler's own cost, can make it more than the step.
double busy_share(const BenchTrainResult& result) {
  return result.step_ms > 0 ? result.kernels_ms / result.step_ms : 0;
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
  for (const BenchTrainPeer& peer : run.peers) {
    rows.push_back({"PyTorch " + peer.name, peer.units_per_second, peer.step_ms, tflops(run.main_case(), peer.step_ms),
                    peer.device_memory_bytes, 0});
  }
  return rows;
}

std::string gpu_speed_table(const BenchTrainRun& run) {
  const bool tokens = run.main_result().unit == "tokens";
  std::vector<Column> columns = {{"", Align::kLeft}};
  std::vector<std::string> headers = {tokens ? "tok/s" : "samples/s", "step ms", "TFLOP/s"};
  if (run.peak_tflops > 0) headers.push_back("of the peak");
  headers.insert(headers.end(), {"GPU memory", "GPU busy"});
  for (const BenchTrainPeer& peer : run.peers) headers.push_back("by " + peer.name);
  for (const std::string& header : headers) columns.emplace_back(header, Align::kRight);
  Table table(columns);
  for (const GpuRow& row : rows_of(run)) {
    std::vector<std::string> cells = {row.name, per_second_text(row.units_per_second), ms_text(row.step_ms),
                                      tflops_text(row.tflops)};
    if (run.peak_tflops > 0) cells.push_back(row.tflops > 0 ? percent(row.tflops / run.peak_tflops) : kNone);
    cells.push_back(format_bytes(row.memory_bytes));
    cells.push_back(row.busy > 0 ? fmt::format("{:.0f} %", 100 * std::min(1.0, row.busy)) : kNone);
    for (const BenchTrainPeer& peer : run.peers) {
      cells.push_back(fmt::format("{:.2f}x", row.units_per_second / peer.units_per_second));
    }
    table.add_row(cells);
  }
  return table.to_text({.indent = 2});
}

double ms_of_class(const BenchTrainResult& result, const std::string& name) {
  for (const KernelClassTime& one : result.kernel_classes) {
    if (one.name == name) return one.ms;
  }
  return 0;
}

/// Shares are of all kernels. Empty where nobody timed them.
std::string kernels_table(const BenchTrainRun& run) {
  std::vector<Column> columns = {{"kernels", Align::kLeft}};
  std::vector<std::string> classes;  // in the order of the main case, then what only others have
  std::vector<size_t> shown = {run.plan.main};
  for (const size_t i : run.plan.layouts) {
    if (i != run.plan.main) shown.push_back(i);
  }
  std::erase_if(shown, [&](size_t i) { return run.results[i].kernel_classes.empty(); });
  if (shown.empty()) return "";
  for (const size_t i : shown) {
    columns.emplace_back(run.plan.cases[i].name + ", ms", Align::kRight);
    columns.emplace_back("share", Align::kRight);
    for (const KernelClassTime& one : run.results[i].kernel_classes) {
      if (std::find(classes.begin(), classes.end(), one.name) == classes.end()) classes.push_back(one.name);
    }
  }
  Table table(columns);
  const auto add = [&](const std::string& name, const auto& ms_of) {
    std::vector<std::string> cells = {name};
    for (const size_t i : shown) {
      const double ms = ms_of(run.results[i]);
      cells.push_back(ms > 0 ? ms_text(ms) : kNone);
      cells.push_back(ms > 0 ? percent(ms / run.results[i].kernels_ms) : kNone);
    }
    table.add_row(cells);
  };
  for (const std::string& name : classes) {
    add(name, [&](const BenchTrainResult& result) { return ms_of_class(result, name); });
  }
  add("all", [](const BenchTrainResult& result) { return result.kernels_ms; });
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

std::string bench_train_gpu_tables(const BenchTrainRun& run, bool colour) {
  std::string text = gpu_speed_table(run) + "\n" + losses_text(run);
  const std::string kernels = kernels_table(run);
  if (kernels.empty()) return text;
  return text + "\n" + emphasised("where the time of a step goes", Emphasis::kBold, colour) + "\n" + kernels;
}

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
  json["gpu_busy"] = r.kernels_ms > 0 ? Json(busy_share(r)) : Json();
  json["kernels_ms"] = Json::object();
  for (const KernelClassTime& one : r.kernel_classes) json["kernels_ms"][one.name] = one.ms;
  for (const BenchTrainPeer& peer : run.peers) {
    json["by_torch_" + peer.name] = r.units_per_second / peer.units_per_second;
  }
}

void add_gpu_peers(Json& json, const BenchTrainRun& run) {
  json["peers"] = Json::array();
  for (const BenchTrainPeer& peer : run.peers) {
    json["peers"].push_back({{"peer", "torch " + peer.name},
                             {run.main_result().unit + "_per_second", peer.units_per_second},
                             {"step_ms", peer.step_ms},
                             {"tflops", tflops(run.main_case(), peer.step_ms)},
                             {"device_memory_bytes", peer.device_memory_bytes},
                             {"each_step_ms", peer.each_step_ms}});
  }
  json["machine"]["gpus"] = Json::array();
  for (const GpuCard& card : run.gpus) {
    json["machine"]["gpus"].push_back({{"name", card.name},
                                       {"memory_bytes", card.memory_bytes},
                                       {"compute_capability", card.compute_capability},
                                       {"driver", card.driver}});
  }
}

}  // namespace trireme::cli
