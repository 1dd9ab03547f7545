#include "trireme/cli/bench_train_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <fstream>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/units.h"
#include "trireme/cli/bench_comm_machine.h"
#include "trireme/cli/bench_train_gpu_report.h"
#include "trireme/cli/bench_train_precision.h"
#include "trireme/cli/commands.h"
#include "trireme/observe/plot.h"
#include "trireme/observe/style.h"
#include "trireme/observe/table.h"

namespace trireme::cli {
namespace {

std::string short_unit(const BenchTrainResult& result) { return result.unit == "tokens" ? "tok/s" : "samples/s"; }
bool same_bits(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

/// Layouts that compute the same numbers: equal configs, but for how the work is spread.
bool same_work(const BenchTrainCase& a, const BenchTrainCase& b) {
  Config spread_like_a = b.config;
  spread_like_a.parallel = a.config.parallel;
  return spread_like_a == a.config;
}

/// Whether all layouts of the same work as the main one ended with its loss; nothing where it stands alone.
std::optional<bool> losses_agree(const BenchTrainRun& run) {
  std::optional<bool> agree;
  for (const size_t i : run.plan.layouts) {
    if (i == run.plan.main || !same_work(run.plan.cases[i], run.main_case())) continue;
    agree = agree.value_or(true) && same_bits(run.results[i].loss, run.main_result().loss);
  }
  return agree;
}

std::string layouts_table(const BenchTrainRun& run) {
  const BenchTrainResult& main = run.main_result();
  const bool compared = !run.torch_version.empty();
  std::vector<Column> columns = {{"layout", Align::kLeft}};
  std::vector<std::string> headers = {short_unit(main), "step ms",   "data",  "forward",     "backward",      "stages",
                                      "exposed",        "optimizer", "other", "peak memory", "reduced a step"};
  if (compared) headers.insert(headers.end(), {"DDP " + short_unit(main), "ours/DDP"});
  for (const std::string& header : headers) columns.emplace_back(header, Align::kRight);
  Table table(columns);
  for (const size_t i : run.plan.layouts) {
    const BenchTrainResult& r = run.results[i];
    std::vector<std::string> cells = {run.plan.cases[i].name, per_second_text(r.units_per_second), ms_text(r.step_ms)};
    for (const auto& [name, ms] : r.parts_ms) cells.push_back(ms_text(ms));
    cells.push_back(format_bytes(r.peak_memory_bytes));
    cells.push_back(format_bytes(r.reduced_bytes_per_step));
    if (compared && r.ddp_step_ms > 0) {
      cells.push_back(per_second_text(r.ddp_units_per_second));
      cells.push_back(fmt::format("{:.2f}x", r.units_per_second / r.ddp_units_per_second));
    }
    table.add_row(cells);
  }
  return table.to_text({.indent = 2});
}

/// "bfloat16 · NVIDIA H200", or what else there is.
std::string gpu_title(const BenchTrainRun& run) {
  std::string title = run.main_case().config.precision.compute;
  title += run.gpus.empty() ? " · GPU" : " · " + run.gpus.front().name;
  return run.main_case().num_workers == 1 ? title : fmt::format("{} · {}", title, run.main_result().transport);
}

std::string efficiency_text(const BenchTrainRun& run, const Efficiency& efficiency) {
  const std::string times = efficiency.times == 2 ? "twice" : fmt::format("{:.3g} times", efficiency.times);
  const int workers = run.plan.cases[efficiency.base].num_workers;
  const std::string base = workers == 1 ? "one worker" : fmt::format("{} workers", workers);
  return fmt::format("efficiency {:.0f} % of {} {} ({})\n", 100 * efficiency.value, times, base,
                     efficiency.same_share ? "each with the same samples a step" : "of the same batch in all");
}

Json result_json(const BenchTrainRun& run, size_t i) {
  const BenchTrainCase& measured = run.plan.cases[i];
  const BenchTrainResult& r = run.results[i];
  Json parts;
  for (const auto& [name, ms] : r.parts_ms) parts[name] = ms;
  const bool compared = r.ddp_step_ms > 0;
  Json json = {{"layout", measured.name},
               {r.unit + "_per_second", r.units_per_second},
               {"step_ms", r.step_ms},
               {"parts_ms", parts},
               {"loss", r.loss},
               {"peak_memory_bytes", r.peak_memory_bytes},
               {"state_bytes", r.state_bytes},
               {"weight_bytes", r.weight_bytes},
               {"gradient_bytes", r.gradient_bytes},
               {"optimizer_bytes", r.optimizer_bytes},
               {"buffer_bytes", r.buffer_bytes},
               {"activation_bytes", r.activation_bytes},
               {"pass_peak_bytes", r.pass_peak_bytes},
               {"reduced_bytes_per_step", r.reduced_bytes_per_step},
               {"sent_bytes_per_step", r.sent_bytes_per_step},
               {"ranks", measured.num_workers},
               {"global_batch", measured.samples_per_step},
               {"precision", measured.config.precision.compute},
               {"gradients", measured.config.precision.gradients},
               {"transport", r.transport},
               {"each_step_ms", r.each_step_ms},
               {"loss_repeats", r.loss_repeats},
               {"ddp_" + r.unit + "_per_second", compared ? Json(r.ddp_units_per_second) : Json()},
               {"ddp_step_ms", compared ? Json(r.ddp_step_ms) : Json()},
               {"each_ddp_step_ms", r.each_ddp_step_ms}};
  if (run.on_gpu()) add_gpu_fields(json, run, i);
  return json;
}

}  // namespace

std::string ms_text(double ms) { return ms < 10 ? fmt::format("{:.2f}", ms) : fmt::format("{:.1f}", ms); }
std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string per_second_text(double rate) {
  return rate < 100 ? fmt::format("{:.1f}", rate) : format_count(std::llround(rate));
}

std::optional<Efficiency> efficiency_of(const BenchTrainRun& run) {
  const BenchTrainCase& main = run.main_case();
  for (const size_t i : run.plan.layouts) {
    const BenchTrainCase& base = run.plan.cases[i];
    if (base.num_workers >= main.num_workers) continue;
    Efficiency efficiency;
    efficiency.base = i;
    efficiency.times = static_cast<double>(main.num_workers) / base.num_workers;
    efficiency.value = run.main_result().units_per_second / (efficiency.times * run.results[i].units_per_second);
    efficiency.same_share = base.samples_per_step * main.num_workers == main.samples_per_step * base.num_workers;
    return efficiency;
  }
  return std::nullopt;
}

std::string bench_train_text(const BenchTrainRun& run, bool colour) {
  const BenchTrainCase& main = run.main_case();
  const BenchTrainResult& result = run.main_result();
  const std::string title = fmt::format("{} of {} parameters · {} samples a step · {}", name_of(main.config.model.kind),
                                        format_short_count(static_cast<double>(result.num_parameters)),
                                        main.samples_per_step, run.on_gpu() ? gpu_title(run) : result.transport);
  std::string text = emphasised(title, Emphasis::kBold, colour) + "\n";
  text += run.on_gpu() ? bench_train_gpu_tables(run, colour) : layouts_table(run) + "\n";
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
  if (!run.plan.precisions.empty()) {
    text += bench_train_precision_tables(run, colour);
  }
  const Machine machine = this_machine();
  text += fmt::format(
      "\nmedians of {} repeats in turn · {}\n", result.each_step_ms.size(),
      run.on_gpu() ? "TFLOP/s: of the model's matrix products · kernels: of profiled steps after those"
                   : "ms of worker 0 · stages: waiting for others of a pipeline · exposed: sums that nothing hides");
  text += fmt::format("{} cores, {} · trireme {}{}\n", machine.cores, machine.processor, version_text(),
                      run.torch_version.empty() ? "" : " · PyTorch " + run.torch_version);
  for (const std::string& note : run.notes) text += "note: " + note + "\n";
  return text;
}

Json bench_train_json(const BenchTrainRun& run) {
  Json json = result_json(run, run.plan.main);
  const auto efficiency = efficiency_of(run);
  const auto agree = losses_agree(run);
  json["efficiency"] = efficiency ? Json(efficiency->value) : Json();
  json["losses_agree"] = agree ? Json(*agree) : Json();
  json["results"] = Json::array();
  for (const size_t i : run.plan.layouts) json["results"].push_back(result_json(run, i));
  json["precisions"] = Json::array();
  for (const size_t i : run.plan.precisions) json["precisions"].push_back(result_json(run, i));
  const Machine machine = this_machine();
  json["machine"] = {
      {"host", machine.host},      {"processor", machine.processor},
      {"cores", machine.cores},    {"memory_bytes", machine.memory_bytes},
      {"kernel", machine.kernel},  {"date", machine.date},
      {"trireme", version_text()}, {"torch", run.torch_version.empty() ? Json() : Json(run.torch_version)}};
  if (run.on_gpu()) add_gpu_peers(json, run);
  json["notes"] = run.notes;
  return json;
}

void write_bench_train_plot(const std::string& path, const BenchTrainRun& run) {
  std::vector<size_t> by_workers = run.plan.layouts;
  std::erase_if(by_workers, [&](size_t i) {  // on a GPU the other mode has as many workers
    return run.plan.cases[i].config.train.deterministic != run.main_case().config.train.deterministic;
  });
  std::stable_sort(by_workers.begin(), by_workers.end(),
                   [&](size_t a, size_t b) { return run.plan.cases[a].num_workers < run.plan.cases[b].num_workers; });
  Series ours{.name = "trireme", .points = {}, .color = 0}, ddp{.name = "PyTorch DDP", .points = {}, .color = 1};
  Series ideal{.name = "as many times the first", .points = {}, .dashed = true, .color = 0};
  const double base_workers = run.plan.cases[by_workers[0]].num_workers;
  const double base_speed = run.results[by_workers[0]].units_per_second;
  for (const size_t i : by_workers) {
    const double workers = run.plan.cases[i].num_workers;
    const BenchTrainResult& r = run.results[i];
    ours.points.emplace_back(workers, r.units_per_second);
    ideal.points.emplace_back(workers, base_speed * workers / base_workers);
    if (r.ddp_step_ms > 0) ddp.points.emplace_back(workers, r.ddp_units_per_second);
  }
  Chart chart;
  chart.title = "Training speed";
  chart.subtitle =
      fmt::format("{} of {} parameters; medians, higher is better", name_of(run.main_case().config.model.kind),
                  format_short_count(static_cast<double>(run.main_result().num_parameters)));
  chart.x.label = "workers";
  chart.y.label = run.main_result().unit + " a second";
  chart.y.min = 0;
  chart.series = {ours, ideal};
  if (!ddp.points.empty()) chart.series.push_back(ddp);
  std::ofstream file(path, std::ios::trunc);
  file << to_svg(chart);
  file.close();
  if (!file) throw SystemError("write " + path, errno);
}

}  // namespace trireme::cli
