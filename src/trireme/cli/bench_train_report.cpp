#include "trireme/cli/bench_train_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

#include "trireme/base/json.h"
#include "trireme/base/units.h"
#include "trireme/cli/commands.h"
#include "trireme/config/model_flops.h"
#include "trireme/measure/machine.h"
#include "trireme/observe/style.h"
#include "trireme/observe/table.h"

namespace trireme::cli {
namespace {

using measure::TrainCase, measure::TrainResult, measure::TrainRun;

constexpr const char* kNone = "–";
/// Counts of bytes that a worker prints and the JSON has under the same names.
constexpr const char* kByteCounts[] = {"state_bytes",     "weight_bytes",           "gradient_bytes",
                                       "optimizer_bytes", "buffer_bytes",           "activation_bytes",
                                       "pass_peak_bytes", "reduced_bytes_per_step", "sent_bytes_per_step"};

/// Three digits: "9.87", "104.4"; "4,980", "31.2".
std::string ms_text(double ms) { return ms < 10 ? fmt::format("{:.2f}", ms) : fmt::format("{:.1f}", ms); }
std::string per_second_text(double rate) {
  return rate < 100 ? fmt::format("{:.1f}", rate) : format_count(std::llround(rate));
}

uint64_t count_of(const TrainResult& result, const char* name) { return result.said.value(name, uint64_t{0}); }
std::string transport_of(const TrainResult& result) { return result.said.value("transport", ""); }

std::string short_unit(const TrainResult& result) { return result.unit == "tokens" ? "tok/s" : "samples/s"; }
bool same_bits(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

/// Layouts that compute the same numbers: equal configs, but for how the work is spread.
bool same_work(const TrainCase& a, const TrainCase& b) {
  Config spread_like_a = b.config;
  spread_like_a.parallel = a.config.parallel;
  return spread_like_a == a.config;
}

/// Whether all layouts of the same work as the main one ended with its loss; nothing where it stands alone.
std::optional<bool> losses_agree(const TrainRun& run) {
  std::optional<bool> agree;
  for (const size_t i : run.plan.layouts) {
    if (i == run.plan.main || !same_work(run.plan.cases[i], run.main_case())) continue;
    agree = agree.value_or(true) && same_bits(run.results[i].loss, run.main_result().loss);
  }
  return agree;
}

std::string layouts_table(const TrainRun& run) {
  const TrainResult& main = run.main_result();
  const bool compared = !run.torch_version.empty();
  std::vector<Column> columns = {{"layout", Align::kLeft}};
  std::vector<std::string> headers = {short_unit(main), "step ms",   "data",  "forward",     "backward",      "stages",
                                      "exposed",        "optimizer", "other", "peak memory", "reduced a step"};
  if (compared) headers.insert(headers.end(), {"DDP " + short_unit(main), "ours/DDP"});
  for (const std::string& header : headers) columns.emplace_back(header, Align::kRight);
  Table table(columns);
  for (const size_t i : run.plan.layouts) {
    const TrainResult& r = run.results[i];
    std::vector<std::string> cells = {run.plan.cases[i].name, per_second_text(r.units_per_second), ms_text(r.step_ms)};
    for (const auto& [name, ms] : r.parts_ms) cells.push_back(ms_text(ms));
    cells.push_back(format_bytes(r.peak_memory_bytes));
    cells.push_back(format_bytes(count_of(r, "reduced_bytes_per_step")));
    if (compared && r.ddp_step_ms > 0) {
      cells.push_back(per_second_text(r.ddp_units_per_second));
      cells.push_back(fmt::format("{:.2f}x", r.units_per_second / r.ddp_units_per_second));
    }
    table.add_row(cells);
  }
  return table.to_text({.indent = 2});
}

/// "bfloat16 · NVIDIA H200", or what else there is.
std::string gpu_title(const TrainRun& run) {
  std::string title(name_of(run.main_case().config.precision.compute));
  title += run.gpus.empty() ? " · GPU" : " · " + run.gpus.front().name;
  return run.main_case().num_workers == 1 ? title : fmt::format("{} · {}", title, transport_of(run.main_result()));
}

/// Speed of the main layout, by that of its workers if each were as fast as the base alone. The base is the first
/// layout with fewer workers; nothing where there is none.
struct Efficiency {
  size_t base = 0;  ///< a case
  double value = 0;
  double times = 0;  ///< workers, by the base's
  bool same_batch_part =
      true;  ///< a worker had as many samples as in the base; else the batch was the same, or neither
};
std::optional<Efficiency> efficiency_of(const TrainRun& run) {
  const TrainCase& main = run.main_case();
  for (const size_t i : run.plan.layouts) {
    const TrainCase& base = run.plan.cases[i];
    if (base.num_workers >= main.num_workers) continue;
    Efficiency efficiency;
    efficiency.base = i;
    efficiency.times = static_cast<double>(main.num_workers) / base.num_workers;
    efficiency.value = run.main_result().units_per_second / (efficiency.times * run.results[i].units_per_second);
    efficiency.same_batch_part = base.samples_per_step * main.num_workers == main.samples_per_step * base.num_workers;
    return efficiency;
  }
  return std::nullopt;
}

std::string efficiency_text(const TrainRun& run, const Efficiency& efficiency) {
  const std::string times = efficiency.times == 2 ? "twice" : fmt::format("{:.3g} times", efficiency.times);
  const int workers = run.plan.cases[efficiency.base].num_workers;
  const std::string base = workers == 1 ? "one worker" : fmt::format("{} workers", workers);
  return fmt::format("efficiency {:.0f} % of {} {} ({})\n", 100 * efficiency.value, times, base,
                     efficiency.same_batch_part ? "each with the same samples a step" : "of the same batch in all");
}

/// Of the model's own arithmetic; 0 where it is not counted.
double tflops(const TrainCase& measured, double step_ms) {
  return step_ms > 0 ? model_flops(measured.config.model, measured.samples_per_step) / step_ms * 1e-9 : 0;
}

/// Kernels on several streams, and the profiler's own cost, can make it more than the step; 0 where it is not known.
double busy_fraction(const TrainResult& result) {
  double us = 0;
  for (const auto& [name, kernel_us] : result.kernels_us) us += kernel_us;
  return result.step_ms > 0 ? us / 1000 / result.step_ms : 0;
}

std::string tflops_text(double value) { return value > 0 ? fmt::format("{:.1f}", value) : kNone; }

std::string gpu_speed_table(const TrainRun& run) {
  const bool tokens = run.main_result().unit == "tokens";
  std::vector<Column> columns = {{"", Align::kLeft}};
  std::vector<std::string> headers = {tokens ? "tok/s" : "samples/s", "step ms", "TFLOP/s"};
  if (run.peak_tflops > 0) headers.push_back("of the peak");
  headers.insert(headers.end(), {"GPU memory", "GPU busy"});
  for (const std::string& header : headers) columns.emplace_back(header, Align::kRight);
  Table table(columns);
  for (const size_t i : run.plan.layouts) {
    const TrainResult& r = run.results[i];
    const double speed = tflops(run.plan.cases[i], r.step_ms), busy = busy_fraction(r);
    std::vector<std::string> cells = {run.plan.cases[i].name, per_second_text(r.units_per_second), ms_text(r.step_ms),
                                      tflops_text(speed)};
    if (run.peak_tflops > 0) cells.push_back(speed > 0 ? percent(speed / run.peak_tflops) : kNone);
    cells.push_back(format_bytes(r.device_memory_bytes));
    cells.push_back(busy > 0 ? fmt::format("{:.0f} %", 100 * std::min(1.0, busy)) : kNone);
    table.add_row(cells);
  }
  return table.to_text({.indent = 2});
}

/// Whether repeats have the same bits is half of what the modes are about.
std::string losses_text(const TrainRun& run) {
  std::string text;
  for (const size_t i : run.plan.layouts) {
    const TrainResult& r = run.results[i];
    text += fmt::format("{}: loss {:.6f} after the last step", run.plan.cases[i].name, r.loss);
    if (r.each_step_ms.size() > 1) {
      text += r.loss_repeats ? ", the same bits in every repeat" : ", with other bits in some repeats";
    }
    text += "\n";
  }
  return text;
}

void add_gpu_fields(Json& json, const TrainRun& run, size_t i) {
  const TrainCase& measured = run.plan.cases[i];
  const TrainResult& r = run.results[i];
  const double speed = tflops(measured, r.step_ms);
  json["device"] = "cuda";
  json["deterministic"] = measured.config.train.deterministic;
  json["parameters"] = count_of(r, "parameters");
  json["device_memory_bytes"] = r.device_memory_bytes;
  json["flops_per_step"] = speed > 0 ? Json(model_flops(measured.config.model, measured.samples_per_step)) : Json();
  json["tflops"] = speed > 0 ? Json(speed) : Json();
  json["peak_tflops"] = run.peak_tflops > 0 ? Json(run.peak_tflops) : Json();
  json["of_peak"] = speed > 0 && run.peak_tflops > 0 ? Json(speed / run.peak_tflops) : Json();
  json["gpu_busy"] = r.kernels_us.empty() ? Json() : Json(busy_fraction(r));
  json["kernels_us"] = Json::object();
  for (const auto& [name, us] : r.kernels_us) json["kernels_us"][name] = us;
}

void add_gpus(Json& json, const TrainRun& run) {
  json["machine"]["gpus"] = Json::array();
  for (const measure::GpuCard& card : run.gpus) {
    json["machine"]["gpus"].push_back({{"name", card.name},
                                       {"memory_bytes", card.memory_bytes},
                                       {"compute_capability", card.compute_capability},
                                       {"driver", card.driver}});
  }
}

Json result_json(const TrainRun& run, size_t i) {
  const TrainCase& measured = run.plan.cases[i];
  const TrainResult& r = run.results[i];
  Json parts;
  for (const auto& [name, ms] : r.parts_ms) parts[name] = ms;
  const bool compared = r.ddp_step_ms > 0;
  Json json = {{"layout", measured.name},
               {r.unit + "_per_second", r.units_per_second},
               {"step_ms", r.step_ms},
               {"parts_ms", parts},
               {"loss", r.loss},
               {"peak_memory_bytes", r.peak_memory_bytes},
               {"ranks", measured.num_workers},
               {"global_batch", measured.samples_per_step},
               {"precision", name_of(measured.config.precision.compute)},
               {"gradients", name_of(measured.config.precision.gradients)},
               {"transport", transport_of(r)},
               {"each_step_ms", r.each_step_ms},
               {"loss_repeats", r.loss_repeats},
               {"ddp_" + r.unit + "_per_second", compared ? Json(r.ddp_units_per_second) : Json()},
               {"ddp_step_ms", compared ? Json(r.ddp_step_ms) : Json()},
               {"each_ddp_step_ms", r.each_ddp_step_ms}};
  for (const char* name : kByteCounts) json[name] = count_of(r, name);
  if (run.on_gpu()) add_gpu_fields(json, run, i);
  return json;
}

}  // namespace

std::string percent(double fraction) { return fmt::format("{:.1f} %", 100 * fraction); }

std::string bench_train_text(const TrainRun& run, bool colour) {
  const TrainCase& main = run.main_case();
  const TrainResult& result = run.main_result();
  const std::string title = fmt::format("{} of {} parameters · {} samples a step · {}", name_of(main.config.model.kind),
                                        format_short_count(static_cast<double>(count_of(result, "parameters"))),
                                        main.samples_per_step, run.on_gpu() ? gpu_title(run) : transport_of(result));
  std::string text = emphasised(title, Emphasis::kBold, colour) + "\n";
  text += run.on_gpu() ? gpu_speed_table(run) + "\n" + losses_text(run) : layouts_table(run) + "\n";
  if (const auto efficiency = efficiency_of(run)) text += efficiency_text(run, *efficiency);
  if (const auto agree = losses_agree(run)) {
    text += *agree ? fmt::format("loss {:.6f} after the last step in each layout, bit for bit\n", result.loss)
                   : "losses differ between layouts: trireme verify tells where\n";
  }
  if (result.ddp_step_ms > 0) {
    text +=
        fmt::format("PyTorch DDP {}, ours {}: {:.2f}x\n", format_rate(result.ddp_units_per_second, "tok"),
                    format_rate(result.units_per_second, "tok"), result.units_per_second / result.ddp_units_per_second);
  }
  const measure::Machine machine = measure::machine_at_hand();
  text += fmt::format(
      "\nmedians of {} repeats in turn · {}\n", result.each_step_ms.size(),
      run.on_gpu() ? "TFLOP/s: of the model's matrix products · GPU busy: of profiled steps after those"
                   : "ms of worker 0 · stages: waiting for others of a pipeline · exposed: sums that nothing hides");
  text += fmt::format("{} cores, {} · trireme {}{}\n", machine.cores, machine.processor, version_text(),
                      run.torch_version.empty() ? "" : " · PyTorch " + run.torch_version);
  for (const std::string& note : run.notes) text += "note: " + note + "\n";
  return text;
}

Json bench_train_json(const TrainRun& run) {
  Json json = result_json(run, run.plan.main);
  const auto efficiency = efficiency_of(run);
  const auto agree = losses_agree(run);
  json["efficiency"] = efficiency ? Json(efficiency->value) : Json();
  json["losses_agree"] = agree ? Json(*agree) : Json();
  json["results"] = Json::array();
  for (const size_t i : run.plan.layouts) json["results"].push_back(result_json(run, i));
  json["machine"] = measure::machine_json();
  json["machine"]["trireme"] = version_text();
  json["machine"]["torch"] = run.torch_version.empty() ? Json() : Json(run.torch_version);
  if (run.on_gpu()) add_gpus(json, run);
  json["notes"] = run.notes;
  return json;
}

}  // namespace trireme::cli
