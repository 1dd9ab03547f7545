// `trireme trace`: merges what the ranks of a run have traced, and sets the predicted timeline beside the measured one.
#include "trireme/program/trace.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/cli/commands.h"
#include "trireme/observe/append_file.h"
#include "trireme/observe/run_folder.h"
#include "trireme/observe/table.h"
#include "trireme/program/draw.h"

namespace trireme::cli {
namespace {

constexpr uint64_t kMostTraceBytes = uint64_t{256} << 20;

struct TraceFlags {
  std::string run, out, svg;
  bool json = false;
};

std::vector<StepTrace> read_traces(const std::filesystem::path& run) {
  const std::filesystem::path folder = RunPaths{run}.traces();
  std::error_code ignored;
  if (!std::filesystem::is_directory(run, ignored))
    throw UsageError(fmt::format("there is no folder {}", run.string()));
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) files.push_back(entry.path());
  if (files.empty()) {
    throw UsageError(fmt::format("{} has no traces", run.string()),
                     "train with --observe.trace_steps 3, for example: these steps are traced");
  }
  std::sort(files.begin(), files.end());
  std::vector<StepTrace> traces;
  for (const auto& file : files) {
    try {
      traces.push_back(trace_from_json(read_whole_file(file, kMostTraceBytes)));
    } catch (const UsageError& error) {
      throw UsageError(fmt::format("{}: {}", file.string(), error.what()));
    }
  }
  return traces;
}

void print_object(const std::vector<TraceReport>& reports, const std::vector<DeviceReport>& devices,
                  const std::filesystem::path& out) {
  Json steps = Json::array();
  for (const TraceReport& report : reports) {
    steps.push_back({{"step", report.step},
                     {"replica", report.replica},
                     {"measured_ms", report.measured_ms},
                     {"predicted_ms", report.predicted_ms},
                     {"measured_bubble", report.measured_bubble},
                     {"predicted_bubble", report.predicted_bubble},
                     {"forward_ms", report.times.forward},
                     {"backward_ms", report.times.backward},
                     {"weight_ms", report.times.weight}});
  }
  Json gpus = Json::array();
  for (const DeviceReport& device : devices) {
    gpus.push_back({{"step", device.step},
                    {"rank", device.rank},
                    {"computing_ms", device.computing_ms},
                    {"moving_ms", device.moving_ms},
                    {"hidden_ms", device.hidden_ms}});
  }
  print_json({{"trace", out.string()}, {"steps", steps}, {"gpus", gpus}});
}

void print_devices(const std::vector<DeviceReport>& devices) {
  if (devices.empty()) return;
  Table table({"step", "rank", "GPU computes ms", "gathers and sums ms", "beside computing"});
  for (const DeviceReport& device : devices) {
    const double fraction = device.moving_ms > 0 ? device.hidden_ms / device.moving_ms : 0;
    table.add_row({std::to_string(device.step), std::to_string(device.rank), fmt::format("{:.2f}", device.computing_ms),
                   fmt::format("{:.2f}", device.moving_ms), fmt::format("{:.0f} %", 100 * fraction)});
  }
  fmt::print("{}\n", table.to_text());
}

void print_table(const std::vector<TraceReport>& reports, const std::filesystem::path& out) {
  Table table({"step", "replica", "measured ms", "predicted ms", "measured bubble", "predicted bubble"});
  for (const TraceReport& report : reports) {
    table.add_row({std::to_string(report.step), std::to_string(report.replica),
                   fmt::format("{:.2f}", report.measured_ms), fmt::format("{:.2f}", report.predicted_ms),
                   fmt::format("{:.1f} %", 100 * report.measured_bubble),
                   fmt::format("{:.1f} %", 100 * report.predicted_bubble)});
  }
  fmt::print(
      "{}\nPredicted: the same programs with the mean times that were measured, and messages that take none.\n"
      "Timeline of all ranks: {} (open it in ui.perfetto.dev or chrome://tracing)\n",
      table.to_text(), out.string());
}

int run_trace(const TraceFlags& flags) {
  const std::filesystem::path run = run_at(flags.run).folder;
  const std::vector<StepTrace> traces = read_traces(run);
  const std::vector<TraceReport> reports = report_traces(traces);
  const std::filesystem::path out = flags.out.empty() ? run / "trace.json" : std::filesystem::path(flags.out);
  replace_file(out, traces_to_chrome(traces, reports));
  if (!flags.svg.empty()) {
    const TraceReport& last = reports.back();
    replace_file(flags.svg, draw_svg(last.measured, last.programs, fmt::format("step {}, measured", last.step)));
  }
  if (flags.json) {
    print_object(reports, report_devices(traces), out);
  } else {
    print_devices(report_devices(traces));
    print_table(reports, out);
  }
  return 0;
}

}  // namespace

void add_trace(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("trace", "merges the ranks' traces of a run into one timeline");
  const auto flags = std::make_shared<TraceFlags>();
  command->add_option("RUN", flags->run, "the folder of a run that was traced")->required();
  command->add_option("--out", flags->out, "where the timeline goes (RUN/trace.json)")->type_name("FILE");
  command->add_option("--svg", flags->svg, "writes a picture of the last traced step")->type_name("FILE");
  command->add_flag("--json", flags->json, "one object on stdout");
  command->footer(
      "Examples\n"
      "  trireme train --parallel.pp 2 --observe.trace_steps 3 --observe.run_dir traced\n"
      "  trireme trace traced\n"
      "\n"
      "Exit codes: 0 success, 1 a failure, 2 a wrong command line. How it works: docs/programs.md");
  command->callback([flags, &exit_code] { exit_code = run_trace(*flags); });
}

}  // namespace trireme::cli
