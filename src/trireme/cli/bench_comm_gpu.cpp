#include "trireme/cli/bench_comm_gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/cli/bench_comm_report.h"
#include "trireme/cli/bench_train_job.h"
#include "trireme/cli/probe.h"
#include "trireme/cli/written_files.h"
#include "trireme/mesh/cluster_file.h"
#include "trireme/observe/progress.h"
#include "trireme/observe/style.h"
#include "trireme/observe/table.h"

namespace trireme::cli {
namespace {

/// A way of the communicator on GPUs.
struct Way {
  const char* name;     ///< in the table and the cluster file
  const char* backend;  ///< TRIREME_GPU_BACKEND
  bool ordered;         ///< sums in the fixed order
};
constexpr Way kWays[] = {{"ipc", "ipc", true}, {"nccl", "nccl", true}, {"nccl, any order", "nccl", false}};

struct Point {
  std::string operation, way;
  int ranks = 0;
  uint64_t bytes = 0;
  double us = 0, copy_us = 0;
};

struct Measured {
  std::vector<Point> points;
  std::vector<std::string> notes;
};

std::vector<std::string> names_of(const std::vector<Operation>& operations) {
  std::vector<std::string> names;
  for (const Operation operation : operations) names.emplace_back(name_of(operation));
  return names;
}

void measure(const BenchCommOptions& options, int ranks, const Way& way, Measured& measured) {
  std::vector<std::string> sizes;
  for (const uint64_t bytes : options.sizes) sizes.push_back(std::to_string(bytes));
  std::vector<std::string> words = {"bench-comm", "--operations", join(names_of(options.operations), ","), "--sizes",
                                    join(sizes, ",")};
  if (!way.ordered) words.push_back("--any-order");
  try {
    const nlohmann::json said = run_tensor_program(words, ranks, {{"TRIREME_GPU_BACKEND", way.backend}});
    for (const nlohmann::json& each : said.at("results")) {
      measured.points.push_back(
          {each.at("operation"), way.name, ranks, each.at("bytes"), each.at("us"), each.at("copy_us")});
    }
  } catch (const Error& error) {
    const std::string_view why = error.what();
    measured.notes.push_back(fmt::format("{} with {} ranks is left out: {}", way.name, ranks, why));
  }
}

const Point* find(const Measured& measured, const std::string& operation, int ranks, const char* way, uint64_t bytes) {
  for (const Point& p : measured.points) {
    if (p.operation == operation && p.ranks == ranks && p.way == way && p.bytes == bytes) return &p;
  }
  return nullptr;
}

std::string table_of(const BenchCommOptions& options, const Measured& measured, Operation operation, int ranks,
                     bool colour) {
  Table table({{"size", Align::kRight},
               {"ipc µs", Align::kRight},
               {"nccl µs", Align::kRight},
               {"any order µs", Align::kRight},
               {"bus GB/s of the best", Align::kRight},
               {"copy µs", Align::kRight}});
  for (const uint64_t bytes : options.sizes) {
    std::vector<std::string> cells = {format_bytes(bytes)};
    double best = 0, copy = 0;
    for (const Way& way : kWays) {
      const Point* point = find(measured, std::string(name_of(operation)), ranks, way.name, bytes);
      cells.push_back(point ? format_us(point->us) : "–");
      if (!point) continue;
      if (best == 0 || point->us < best) best = point->us;
      copy = point->copy_us;
    }
    if (best == 0) continue;
    cells.push_back(fmt::format("{:.1f}", static_cast<double>(bytes) / best / 1e3 * bus_factor(operation, ranks)));
    cells.push_back(format_us(copy));
    table.add_row(std::move(cells));
  }
  if (table.empty()) return "";
  const std::string title = fmt::format("{} · {} ranks · GPU memory", name_of(operation), ranks);
  return emphasised(title, Emphasis::kBold, colour) + "\n" + table.to_text({.indent = 2}) + "\n";
}

/// Latency and time a byte of an all-reduce's messages, from its smallest and its largest size.
std::vector<TransportCost> links_of(const BenchCommOptions& options, const Measured& measured) {
  std::vector<TransportCost> links;
  const auto [least, most] = std::minmax_element(options.sizes.begin(), options.sizes.end());
  for (const int ranks : options.ranks) {
    for (const Way& way : kWays) {
      const Point* small = find(measured, "all-reduce", ranks, way.name, *least);
      const Point* large = find(measured, "all-reduce", ranks, way.name, *most);
      if (!small || !large || *most == *least || !way.ordered) continue;
      const double wire = bus_factor(Operation::kAllReduce, ranks);  // bytes on the busiest link, by those reduced
      const double us_per_byte = std::max(0.0, large->us - small->us) / (static_cast<double>(*most - *least) * wire);
      const double rounds = 2 * std::ceil(std::log2(ranks));
      links.push_back({way.name, ranks, {small->us / rounds, us_per_byte}, 0, small->us, large->copy_us / *most});
    }
  }
  return links;
}

}  // namespace

void run_bench_comm_gpu(const BenchCommOptions& options, bool colour) {
  if (gpu_library().empty()) throw UsageError(kNoGpuCode, kGetGpuCode);
  ProgressOptions shown;
  shown.label = "bench comm";
  shown.total = options.ranks.size() * std::size(kWays);
  Progress progress(shown);
  Measured measured;
  uint64_t done = 0;
  for (const int ranks : options.ranks) {
    for (const Way& way : kWays) {
      progress.update(done++, fmt::format("{} with {} ranks", way.name, ranks));
      measure(options, ranks, way, measured);
    }
  }
  progress.finish();
  if (measured.points.empty()) throw Error("no backend could be measured on this GPU", measured.notes.at(0));
  if (options.write_cluster) {
    ClusterFile links;
    links.transports = links_of(options, measured);
    keep_in_cluster_file(*options.write_cluster, links);
  }
  if (options.json) {
    Json list = Json::array();
    for (const Point& p : measured.points) {
      const double rate = static_cast<double>(p.bytes) / p.us / 1e3;
      list.push_back({{"operation", p.operation},
                      {"transport", p.way},
                      {"ranks", p.ranks},
                      {"bytes", p.bytes},
                      {"us", p.us},
                      {"floor_us", p.copy_us},
                      {"algbw_gbs", rate},
                      {"busbw_gbs", rate * bus_factor(operation_named(p.operation), p.ranks)},
                      {"registered", true}});
    }
    fmt::print("{}\n", Json{{"results", list}, {"notes", measured.notes}}.dump(2));
    return;
  }
  for (const Operation operation : options.operations) {
    for (const int ranks : options.ranks) fmt::print("{}", table_of(options, measured, operation, ranks, colour));
  }
  fmt::print(
      "µs: a call until its end, median of rank 0 · ipc: processes that share a card · nccl: sums in the "
      "fixed order ·\ncopy: one rank copies as many bytes inside the card\n");
  for (const std::string& note : measured.notes) fmt::print("note: {}\n", note);
  if (options.write_cluster) fmt::print("links written to {}\n", options.write_cluster->string());
}

}  // namespace trireme::cli
