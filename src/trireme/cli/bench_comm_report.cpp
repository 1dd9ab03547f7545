#include "trireme/cli/bench_comm_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/json.h"
#include "trireme/base/units.h"
#include "trireme/cli/commands.h"
#include "trireme/comm/algorithms/cost_model.h"
#include "trireme/measure/machine.h"
#include "trireme/observe/style.h"
#include "trireme/observe/table.h"

namespace trireme::cli {
namespace {

using measure::CommResult, measure::CommRun, measure::ExplainedAlgorithm, measure::ExplainedRanks;

using Results = std::vector<CommResult>;

/// The results of one table, in the order of their measurement.
std::vector<Results> grouped(const Results& results) {
  std::vector<Results> groups;
  for (const CommResult& result : results) {
    const bool same =
        !groups.empty() && groups.back()[0].operation == result.operation && groups.back()[0].ranks == result.ranks;
    if (!same) groups.emplace_back();
    groups.back().push_back(result);
  }
  return groups;
}

/// Three digits: "1.23", "45.6", "5,500".
std::string format_us(double us) {
  if (us < 10) return fmt::format("{:.2f}", us);
  return us < 100 ? fmt::format("{:.1f}", us) : format_count(std::llround(us));
}

std::string time_text(double us) { return format_duration(us * 1e-6); }

std::string us_or_dash(const std::optional<double>& us) { return us ? format_us(*us) : "–"; }

std::string ratio_text(const std::optional<double>& theirs, double ours) {
  return theirs ? fmt::format("{:.{}f}x", *theirs / ours, *theirs / ours < 10 ? 2 : 1) : "–";
}

/// A row: the same size and algorithm in both kinds of memory.
struct Row {
  const CommResult* registered = nullptr;
  const CommResult* user = nullptr;
  const CommResult& any() const { return registered != nullptr ? *registered : *user; }
};

std::vector<Row> rows_of(const Results& group) {
  std::vector<Row> rows;
  for (const CommResult& result : group) {
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

std::string results_table(const Results& group, bool colour) {
  const CommResult& first = group[0];
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
    const CommResult& result = row.any();
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

/// The machine and the versions on one line.
std::string machine_text(const CommRun& run) {
  const measure::Machine machine = measure::machine_at_hand();
  std::string text = fmt::format("{} cores, {} · trireme {}", machine.cores, machine.processor, version_text());
  if (!run.mpi_version.empty()) text += " · " + run.mpi_version;
  if (!run.gloo_version.empty()) text += " · Gloo of " + run.gloo_version;
  return text;
}

std::string with_root(const std::string& others, const std::string& root) {
  return others == root ? others : fmt::format("{} (root {})", others, root);
}

std::string explained_table(const measure::Explanation& explanation, bool colour) {
  Table table({"algorithm",
               "growth with N ranks",
               {"messages a rank", Align::kLeft},
               {"bytes a rank", Align::kLeft},
               "rounds",
               "predicted",
               "measured",
               ""});
  const auto bytes_text = [](int64_t bytes) { return format_bytes(static_cast<uint64_t>(bytes)); };
  for (const ExplainedAlgorithm& each : explanation.algorithms) {
    table.add_row({std::string(name_of(each.algorithm)), std::string(complexity_of(each.algorithm)),
                   with_root(format_count(each.others.messages), format_count(each.root.messages)),
                   with_root(bytes_text(each.others.bytes), bytes_text(each.root.bytes)),
                   format_count(std::max(each.others.rounds, each.root.rounds)), time_text(each.result.predicted_us),
                   time_text(each.result.us),
                   each.chosen        ? "← chosen"
                   : each.keeps_order ? ""
                                      : "own order"});
  }
  const std::string title = fmt::format("all-reduce of {} · {} ranks · {}", format_bytes(explanation.bytes),
                                        explanation.ranks, explanation.transport);
  return fmt::format("{}\n{}  chosen: {}\n\n", emphasised(title, Emphasis::kBold, colour), table.to_text({.indent = 2}),
                     explanation.why);
}

std::string crossings_text(const std::vector<measure::Crossing>& list) {
  std::string text;
  for (size_t i = 0; i < list.size(); ++i) {
    text += i == 0 ? std::string(name_of(list[i].algorithm))
                   : fmt::format(", from {} on {}", format_bytes(list[i].from_bytes), name_of(list[i].algorithm));
  }
  return text;
}

Json crossings_json(const std::vector<measure::Crossing>& list) {
  Json json = Json::array();
  for (const measure::Crossing& crossing : list) {
    json.push_back({{"from_bytes", crossing.from_bytes}, {"algorithm", name_of(crossing.algorithm)}});
  }
  return json;
}

std::string ns_per_kib(double us_per_byte) { return fmt::format("{:.1f}", us_per_byte * 1024 * 1000); }

std::string whole_percent(double part) { return fmt::format("{:.0f} %", part * 100); }

std::string gpu_table(const measure::CommOptions& options, const measure::GpuCommRun& run, measure::Operation operation,
                      int ranks, bool colour) {
  constexpr Align kRight = Align::kRight;
  Table table(
      {"size", {"ipc µs", kRight}, {"nccl µs", kRight}, {"any order µs", kRight}, "bus GB/s of the best", "copy µs"});
  for (const uint64_t bytes : options.sizes) {
    std::vector<std::string> cells = {format_bytes(bytes)};
    double best = 0, copy = 0;
    for (const measure::GpuWay& way : measure::kGpuWays) {
      const measure::GpuPoint* point = run.find(operation, ranks, way.name, bytes);
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

}  // namespace

std::string table_text(const CommRun& run, const ClusterFile& cluster, bool colour) {
  std::string text;
  for (const Results& group : grouped(run.results)) text += results_table(group, colour);
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

Json results_json(const CommRun& run) {
  const auto or_null = [](const std::optional<double>& us) { return us ? Json(*us) : Json(nullptr); };
  Json list = Json::array();
  for (const CommResult& r : run.results) {
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

Json machine_json(const CommRun& run) {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); };
  Json json = measure::machine_json();
  json["trireme"] = version_text();
  json["mpi"] = or_null(run.mpi_version);
  json["gloo"] = or_null(run.gloo_version);
  return json;
}

std::string explanation_text(const std::vector<ExplainedRanks>& explained, bool colour) {
  std::string text;
  for (const ExplainedRanks& ranks : explained) {
    for (const measure::Explanation& explanation : ranks.sizes) text += explained_table(explanation, colour);
    const measure::Explanation& first = ranks.sizes.at(0);
    text += fmt::format("lowest prediction by messages, {} ranks, {}\n", first.ranks, first.transport);
    text += "  fixed order  " + crossings_text(ranks.ordered) + "\n";
    text += "  any order    " + crossings_text(ranks.any_order) + "\n\n";
  }
  text +=
      "messages and bytes: what a rank sends in one call, counted; (root): rank 0, where it differs · rounds: "
      "messages\n"
      "that wait for each other · own order: fast, but the last bits depend on the number of ranks\n";
  return text;
}

Json explanation_json(const std::vector<ExplainedRanks>& explained) {
  Json rows = Json::array(), crossing_list = Json::array();
  for (const ExplainedRanks& ranks : explained) {
    for (const measure::Explanation& explanation : ranks.sizes) {
      for (const ExplainedAlgorithm& each : explanation.algorithms) {
        rows.push_back({{"ranks", explanation.ranks},
                        {"bytes", explanation.bytes},
                        {"transport", explanation.transport},
                        {"algorithm", name_of(each.algorithm)},
                        {"complexity", complexity_of(each.algorithm)},
                        {"formula", formula_of(each.algorithm)},
                        {"messages_sent", each.others.messages},
                        {"root_messages_sent", each.root.messages},
                        {"bytes_sent", each.others.bytes},
                        {"root_bytes_sent", each.root.bytes},
                        {"rounds", std::max(each.others.rounds, each.root.rounds)},
                        {"predicted_us", each.result.predicted_us},
                        {"us", each.result.us},
                        {"keeps_order", each.keeps_order},
                        {"chosen", each.chosen},
                        {"why", each.chosen ? Json(explanation.why) : Json(nullptr)}});
      }
    }
    crossing_list.push_back({{"ranks", ranks.sizes.at(0).ranks},
                             {"ordered", crossings_json(ranks.ordered)},
                             {"any_order", crossings_json(ranks.any_order)}});
  }
  return {{"algorithms", rows}, {"crossings", crossing_list}};
}

std::string fit_text(const measure::Fit& fit, bool colour) {
  Table constants(
      {"transport", "ranks", "α µs", "β ns/KiB", "error", "γ ns/KiB", "copy ns/KiB", "barrier µs", "all-reduce error"});
  for (const measure::FittedTransport& f : fit.transports) {
    constants.add_row({f.cost.transport, std::to_string(f.cost.ranks), format_us(f.cost.link.latency_us),
                       ns_per_kib(f.cost.link.us_per_byte), whole_percent(f.link_error),
                       ns_per_kib(f.cost.reduce_us_per_byte), ns_per_kib(f.cost.copy_us_per_byte),
                       format_us(f.cost.barrier_us), whole_percent(f.all_reduce_error)});
  }
  std::string left_out;
  for (const std::string& each : fit.left_out) left_out += "note: left out: " + each + "\n";
  return fmt::format("{}\n{}\nerrors: median of |predicted − measured| / measured · written to {}\n{}\n",
                     emphasised("what communication costs on this machine", Emphasis::kBold, colour),
                     constants.to_text({.indent = 2}), fit.path.string(), left_out);
}

Json fit_json(const measure::Fit& fit) {
  Json list = Json::array();
  for (const measure::FittedTransport& f : fit.transports) {
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
                    {"copy_us_per_byte", f.cost.copy_us_per_byte},
                    {"barrier_us", f.cost.barrier_us},
                    {"all_reduce_error", f.all_reduce_error},
                    {"all_reduce", checks}});
  }
  return {{"file", fit.path.string()}, {"transports", list}, {"left_out", fit.left_out}};
}

std::string gpu_text(const measure::CommOptions& options, const measure::GpuCommRun& run, bool colour) {
  std::string text;
  for (const measure::Operation operation : options.operations) {
    for (const int ranks : options.ranks) text += gpu_table(options, run, operation, ranks, colour);
  }
  text +=
      "µs: a call until its end, median of rank 0 · ipc: processes that share a card · nccl: sums in the "
      "fixed order ·\ncopy: one rank copies as many bytes inside the card\n";
  for (const std::string& note : run.notes) text += "note: " + note + "\n";
  return text;
}

Json gpu_json(const measure::GpuCommRun& run) {
  Json list = Json::array();
  for (const measure::GpuPoint& p : run.points) {
    const double rate = static_cast<double>(p.bytes) / p.us / 1e3;
    list.push_back({{"operation", name_of(p.operation)},
                    {"transport", p.way},
                    {"ranks", p.ranks},
                    {"bytes", p.bytes},
                    {"us", p.us},
                    {"floor_us", p.copy_us},
                    {"algbw_gbs", rate},
                    {"busbw_gbs", rate * bus_factor(p.operation, p.ranks)},
                    {"registered", true}});
  }
  return {{"results", list}, {"notes", run.notes}};
}

}  // namespace trireme::cli
