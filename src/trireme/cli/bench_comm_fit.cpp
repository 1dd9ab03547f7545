#include "trireme/cli/bench_comm_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/json.h"
#include "trireme/base/units.h"
#include "trireme/cli/bench_comm_measure.h"
#include "trireme/cli/bench_comm_peers.h"
#include "trireme/cli/bench_comm_predict.h"
#include "trireme/cli/bench_comm_report.h"
#include "trireme/cli/probe.h"
#include "trireme/cli/written_files.h"
#include "trireme/comm/mpi_backend.h"
#include "trireme/observe/style.h"
#include "trireme/observe/table.h"

namespace trireme::cli {
namespace {

constexpr uint64_t kMessageSizes[] = {8, 256, 4 << 10, 32 << 10, 256 << 10, 1 << 20, 8 << 20};
constexpr uint64_t kVectorSizes[] = {16 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
constexpr uint64_t kAllReduceSizes[] = {4 << 10, 64 << 10, 1 << 20, 16 << 20};

double median_time(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return quantile(values, 0.5);
}

double ask_for_median(Crew& crew, const std::string& command) { return median_time(ask_for_times(crew, command)); }

Timings time_vectors(Crew& crew, const char* what) {
  Timings timings;
  for (const uint64_t bytes : kVectorSizes) {
    timings.emplace_back(static_cast<double>(bytes), ask_for_median(crew, fmt::format("{} {}", what, bytes)));
  }
  return timings;
}

FittedTransport fit_transport(Crew& crew, const std::string& name, int ranks) {
  FittedTransport fitted;
  fitted.cost.transport = name;
  fitted.cost.ranks = ranks;
  Timings messages;
  for (const uint64_t bytes : kMessageSizes) {
    const int rounds = bytes > 1'000'000 ? 10 : 60;
    messages.emplace_back(static_cast<double>(bytes),
                          ask_for_median(crew, fmt::format("exchange {} {}", bytes, rounds)));
  }
  fitted.cost.link = fit_line(messages);
  Timings compared;
  for (const auto& [bytes, us] : messages) {
    compared.emplace_back(fitted.cost.link.latency_us + bytes * fitted.cost.link.us_per_byte, us);
  }
  fitted.link_error = median_error(compared);

  const Timings sums = time_vectors(crew, "combine"), copies = time_vectors(crew, "copy");
  // For short vectors other costs matter more.
  fitted.cost.reduce_us_per_byte = fit_rate(std::span(sums).subspan(1));
  fitted.cost.copy_us_per_byte = fit_rate(std::span(copies).subspan(1));
  const auto rate = [](const std::pair<double, double>& timing) { return timing.second / timing.first; };
  fitted.reduce_in_cache = rate(sums.front());
  fitted.reduce_out_of_cache = rate(sums.back());
  fitted.copy_in_cache = rate(copies.front());
  fitted.copy_out_of_cache = rate(copies.back());
  fitted.cost.barrier_us = ask_for_median(crew, "barrier 500");

  compared.clear();
  for (const uint64_t bytes : kAllReduceSizes) {
    std::string algorithm;
    const double us = median_time(ask_for_times(
        crew, measure_command(Operation::kAllReduce, Algorithm::kAuto, true, bytes, bytes > 1'000'000 ? 10 : 100),
        &algorithm));
    const double predicted =
        predict_operation_us(Operation::kAllReduce, algorithm_named(algorithm), ranks, bytes, fitted.cost);
    fitted.all_reduce.emplace_back(static_cast<double>(bytes), us);
    fitted.all_reduce_predicted.push_back(predicted);
    compared.emplace_back(predicted, us);
  }
  fitted.all_reduce_error = median_error(compared);
  return fitted;
}

std::string nanoseconds_a_kib(double us_per_byte) { return fmt::format("{:.1f}", us_per_byte * 1024 * 1000); }

std::string whole_percent(double part) { return fmt::format("{:.0f} %", part * 100); }

}  // namespace

LinkCost fit_line(std::span<const std::pair<double, double>> timings) {
  LinkCost line;
  constexpr int kIterations = 20;
  for (int i = 0; i < kIterations; ++i) {
    // Normal equations. The weight 1 / (measured · predicted) makes twice as much as bad as half as much.
    double w = 0, wn = 0, wnn = 0, wt = 0, wnt = 0;
    for (const auto& [n, t] : timings) {
      const double weight = 1 / (t * (i == 0 ? t : line.latency_us + n * line.us_per_byte));
      w += weight;
      wn += weight * n;
      wnn += weight * n * n;
      wt += weight * t;
      wnt += weight * n * t;
    }
    const double determinant = w * wnn - wn * wn;
    if (!(determinant > 0)) return line;
    line = {(wnn * wt - wn * wnt) / determinant, (w * wnt - wn * wt) / determinant};
    if (line.latency_us <= 0) return {0, wnt / wnn};
    if (line.us_per_byte <= 0) return {wt / w, 0};
  }
  return line;
}

double fit_rate(std::span<const std::pair<double, double>> timings) {
  double sum = 0;
  for (const auto& [n, t] : timings) sum += std::log(t / n);
  return timings.empty() ? 0 : std::exp(sum / static_cast<double>(timings.size()));
}

double median_error(std::span<const std::pair<double, double>> predicted_and_measured) {
  std::vector<double> errors;
  for (const auto& [predicted, measured] : predicted_and_measured) {
    errors.push_back(std::fabs(predicted - measured) / measured);
  }
  return errors.empty() ? 0 : median_time(errors);
}

Fit fit_cluster(const BenchCommOptions& options, Guardian& guardian) {
  Fit fit;
  fit.path = *options.write_cluster;
  load_cluster_file(fit.path);  // a file that cannot be read is told now, not after minutes

  std::vector<std::string> transports = {"threads", "auto", "tcp"};
  if (mpi_backend_installed() && !find_in_path("mpirun").empty()) transports.push_back("mpi");
  ProgressOptions shown;
  shown.label = "fit";
  shown.total = transports.size() * options.ranks.size();
  Progress progress(shown);
  uint64_t done = 0;
  for (const std::string& transport : transports) {
    for (const int ranks : options.ranks) {
      progress.update(done, fmt::format("{} with {} ranks", transport == "auto" ? "shared memory" : transport, ranks));
      ++done;
      try {
        const auto crew = start_ours(transport, ranks, options.bind, guardian);
        const std::string name = crew->wait_until_ready(std::chrono::seconds(60));
        fit.transports.push_back(fit_transport(*crew, name, ranks));
      } catch (const Error& error) {  // one that does not work here must not cost the others
        const std::string_view why = error.what();
        fit.left_out.push_back(fmt::format("{} with {} ranks: {}", transport, ranks, why.substr(0, why.find('\n'))));
      }
    }
  }
  progress.update(done);
  progress.finish();
  if (fit.transports.empty()) throw Error("no transport could be measured", fit.left_out.at(0));

  ClusterFile measured;
  for (const FittedTransport& fitted : fit.transports) measured.transports.push_back(fitted.cost);
  keep_in_cluster_file(fit.path, measured);
  return fit;
}

std::string fit_text(const Fit& fit, bool colour) {
  Table constants({{"transport", Align::kLeft},
                   {"ranks", Align::kRight},
                   {"α µs", Align::kRight},
                   {"β ns/KiB", Align::kRight},
                   {"error", Align::kRight},
                   {"γ ns/KiB", Align::kRight},
                   {"in, out of cache", Align::kRight},
                   {"copy ns/KiB", Align::kRight},
                   {"in, out of cache", Align::kRight},
                   {"barrier µs", Align::kRight},
                   {"all-reduce error", Align::kRight}});
  for (const FittedTransport& f : fit.transports) {
    constants.add_row({f.cost.transport, std::to_string(f.cost.ranks), format_us(f.cost.link.latency_us),
                       nanoseconds_a_kib(f.cost.link.us_per_byte), whole_percent(f.link_error),
                       nanoseconds_a_kib(f.cost.reduce_us_per_byte),
                       nanoseconds_a_kib(f.reduce_in_cache) + ", " + nanoseconds_a_kib(f.reduce_out_of_cache),
                       nanoseconds_a_kib(f.cost.copy_us_per_byte),
                       nanoseconds_a_kib(f.copy_in_cache) + ", " + nanoseconds_a_kib(f.copy_out_of_cache),
                       format_us(f.cost.barrier_us), whole_percent(f.all_reduce_error)});
  }
  std::vector<Column> columns = {{"all-reduce, predicted / measured µs", Align::kLeft}, {"ranks", Align::kRight}};
  for (const uint64_t bytes : kAllReduceSizes) columns.emplace_back(format_bytes(bytes), Align::kRight);
  Table residuals(columns);
  for (const FittedTransport& f : fit.transports) {
    std::vector<std::string> cells = {f.cost.transport, std::to_string(f.cost.ranks)};
    for (size_t i = 0; i < f.all_reduce.size(); ++i) {
      cells.push_back(format_us(f.all_reduce_predicted[i]) + " / " + format_us(f.all_reduce[i].second));
    }
    residuals.add_row(cells);
  }
  std::string left_out;
  for (const std::string& each : fit.left_out) left_out += "note: left out: " + each + "\n";
  return fmt::format("{}\n{}\n{}\nerrors: median_time of |predicted − measured| / measured · written to {}\n{}\n",
                     emphasised("what communication costs on this machine", Emphasis::kBold, colour),
                     constants.to_text({.indent = 2}), residuals.to_text({.indent = 2}), fit.path.string(), left_out);
}

Json fit_json(const Fit& fit) {
  Json list = Json::array();
  for (const FittedTransport& f : fit.transports) {
    Json checks = Json::array();
    for (size_t i = 0; i < f.all_reduce.size(); ++i) {
      checks.push_back({{"bytes", static_cast<uint64_t>(f.all_reduce[i].first)},
                        {"us", f.all_reduce[i].second},
                        {"predicted_us", f.all_reduce_predicted[i]}});
    }
    list.push_back({{"transport", f.cost.transport},
                    {"ranks", f.cost.ranks},
                    {"latency_us", f.cost.link.latency_us},
                    {"us_per_byte", f.cost.link.us_per_byte},
                    {"link_error", f.link_error},
                    {"reduce_us_per_byte", f.cost.reduce_us_per_byte},
                    {"reduce_us_per_byte_in_cache", f.reduce_in_cache},
                    {"reduce_us_per_byte_out_of_cache", f.reduce_out_of_cache},
                    {"copy_us_per_byte", f.cost.copy_us_per_byte},
                    {"copy_us_per_byte_in_cache", f.copy_in_cache},
                    {"copy_us_per_byte_out_of_cache", f.copy_out_of_cache},
                    {"barrier_us", f.cost.barrier_us},
                    {"all_reduce_error", f.all_reduce_error},
                    {"all_reduce", checks}});
  }
  return {{"file", fit.path.string()}, {"transports", list}, {"left_out", fit.left_out}};
}

}  // namespace trireme::cli
