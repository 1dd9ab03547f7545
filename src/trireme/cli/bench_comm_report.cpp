#include "trireme/cli/bench_comm_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/json.h"
#include "trireme/base/units.h"
#include "trireme/cli/bench_comm_machine.h"
#include "trireme/cli/commands.h"
#include "trireme/observe/style.h"
#include "trireme/observe/table.h"

namespace trireme::cli {
namespace {

using Results = std::vector<BenchCommResult>;

/// The results of one table, in the order of their measurement.
std::vector<Results> grouped(const Results& results) {
  std::vector<Results> groups;
  for (const BenchCommResult& result : results) {
    const bool same =
        !groups.empty() && groups.back()[0].operation == result.operation && groups.back()[0].ranks == result.ranks;
    if (!same) groups.emplace_back();
    groups.back().push_back(result);
  }
  return groups;
}

std::string us_or_dash(const std::optional<double>& us) { return us ? format_us(*us) : "–"; }

std::string ratio_text(const std::optional<double>& theirs, double ours) {
  return theirs ? fmt::format("{:.{}f}x", *theirs / ours, *theirs / ours < 10 ? 2 : 1) : "–";
}

/// A row: the same size and algorithm in both kinds of memory.
struct Row {
  const BenchCommResult* registered = nullptr;
  const BenchCommResult* user = nullptr;
  const BenchCommResult& any() const { return registered != nullptr ? *registered : *user; }
};

std::vector<Row> rows_of(const Results& group) {
  std::vector<Row> rows;
  for (const BenchCommResult& result : group) {
    const auto fits = [&](const Row& row) {
      return row.any().bytes == result.bytes && row.any().algorithm == result.algorithm &&
             (result.registered ? row.registered : row.user) == nullptr;
    };
    auto found = std::find_if(rows.begin(), rows.end(), fits);
    if (found == rows.end()) found = rows.insert(rows.end(), Row{});
    (result.registered ? found->registered : found->user) = &result;
  }
  return rows;
}

std::string one_table(const Results& group, bool colour) {
  const BenchCommResult& first = group[0];
  const auto any = [&](auto test) { return std::any_of(group.begin(), group.end(), test); };
  const bool several = any([&](const auto& r) { return r.algorithm != first.algorithm; });
  const bool registered = any([](const auto& r) { return r.registered; });
  const bool user = any([](const auto& r) { return !r.registered; });
  const bool mpi = any([](const auto& r) { return r.mpi_us.has_value(); });
  const bool gloo = any([](const auto& r) { return r.gloo_us.has_value(); });

  std::vector<Column> columns = {{"size", Align::kRight}};
  const auto add = [&](bool wanted, const char* header, Align align = Align::kRight) {
    if (wanted) columns.emplace_back(header, align);
  };
  add(several, "algorithm", Align::kLeft);
  add(registered, registered && user ? "registered µs" : "µs");
  add(user, registered && user ? "user µs" : "µs");
  add(true, "GB/s");
  add(true, "bus GB/s");
  add(true, "predicted");
  add(true, "floor");
  add(mpi, "MPI µs");
  add(mpi, "ratio");
  add(gloo, "Gloo µs");
  add(gloo, "ratio");

  Table table(columns);
  for (const Row& row : rows_of(group)) {
    const BenchCommResult& result = row.any();
    const double rate = static_cast<double>(result.bytes) / result.us / 1e3;
    std::vector<std::string> cells = {format_bytes(result.bytes)};
    if (several) cells.push_back(result.algorithm);
    if (registered) cells.push_back(row.registered != nullptr ? format_us(row.registered->us) : "–");
    if (user) cells.push_back(row.user != nullptr ? format_us(row.user->us) : "–");
    cells.push_back(fmt::format("{:.2f}", rate));
    cells.push_back(fmt::format("{:.2f}", rate * bus_factor(result.operation, result.ranks)));
    cells.push_back(format_us(result.predicted_us));
    cells.push_back(us_or_dash(result.floor_us));
    if (mpi) cells.insert(cells.end(), {us_or_dash(result.mpi_us), ratio_text(result.mpi_us, result.us)});
    if (gloo) cells.insert(cells.end(), {us_or_dash(result.gloo_us), ratio_text(result.gloo_us, result.us)});
    table.add_row(cells);
  }
  const std::string title =
      fmt::format("{} · {} rank{} · {}{}", name_of(first.operation), first.ranks, first.ranks == 1 ? "" : "s",
                  first.transport, several ? "" : " · " + first.algorithm);
  return emphasised(title, Emphasis::kBold, colour) + "\n" + table.to_text({.indent = 2}) + "\n";
}

}  // namespace

std::string format_us(double us) {
  if (us < 10) return fmt::format("{:.2f}", us);
  return us < 100 ? fmt::format("{:.1f}", us) : format_count(std::llround(us));
}

std::string table_text(const BenchCommRun& run, const ClusterFile& cluster, bool colour) {
  std::string text;
  for (const Results& group : grouped(run.results)) text += one_table(group, colour);
  const bool compared = !run.mpi_version.empty() || !run.gloo_version.empty();
  text += "µs: median of rank 0 · GB/s: size / time · floor: one core adds two such vectors";
  text += compared ? " · ratio: peer / ours\n" : "\n";
  text += machine_text(run) + "\n";
  if (cluster.host.empty()) {
    text += "predicted from guesses, not from this machine: measure it with trireme bench comm --write-cluster\n";
  }
  for (const std::string& note : run.notes) text += "note: " + note + "\n";
  return text;
}

Json results_json(const BenchCommRun& run) {
  const auto or_null = [](const std::optional<double>& us) { return us ? Json(*us) : Json(nullptr); };
  Json list = Json::array();
  for (const BenchCommResult& r : run.results) {
    const double rate = r.us > 0 ? static_cast<double>(r.bytes) / r.us / 1e3 : 0;
    list.push_back({{"operation", name_of(r.operation)},
                    {"transport", r.transport},
                    {"algorithm", r.algorithm},
                    {"ranks", r.ranks},
                    {"bytes", r.bytes},
                    {"registered", r.registered},
                    {"us", r.us},
                    {"predicted_us", r.predicted_us},
                    {"floor_us", or_null(r.floor_us)},
                    {"mpi_us", or_null(r.mpi_us)},
                    {"gloo_us", or_null(r.gloo_us)},
                    {"algbw_gbs", rate},
                    {"busbw_gbs", rate * bus_factor(r.operation, r.ranks)},
                    {"min_us", r.fastest_us},
                    {"p90_us", r.slow_us},
                    {"rounds", r.rounds}});
  }
  return list;
}

Json machine_json(const BenchCommRun& run) {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); };
  Json json = machine_json();
  json["mpi"] = or_null(run.mpi_version);
  json["gloo"] = or_null(run.gloo_version);
  return json;
}

std::string machine_text(const BenchCommRun& run) {
  const Machine machine = this_machine();
  std::string text = fmt::format("{} cores, {} · trireme {}", machine.cores, machine.processor, version_text());
  if (!run.mpi_version.empty()) text += " · " + run.mpi_version;
  if (!run.gloo_version.empty()) text += " · Gloo of " + run.gloo_version;
  return text;
}

}  // namespace trireme::cli
