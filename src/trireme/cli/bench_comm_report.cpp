#include "trireme/cli/bench_comm_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>

#include "trireme/base/json.h"
#include "trireme/base/units.h"
#include "trireme/cli/bench_comm_machine.h"
#include "trireme/cli/commands.h"
#include "trireme/observe/plot.h"
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

/// Lines by name, each with a colour of its own; predictions have that of what they predict.
class Lines {
 public:
  void add(const std::string& name, const std::string& coloured_as, const BenchCommResult& at,
           const std::optional<double>& us, bool dashed = false, bool in_legend = true) {
    if (!us) return;
    auto line = std::find_if(series_.begin(), series_.end(), [&](const Series& each) { return each.name == name; });
    if (line == series_.end()) {
      line = series_.insert(line, Series{name, {}, dashed, color_of(coloured_as), in_legend});
    }
    // The results of one point share the peers' times.
    const double x = static_cast<double>(at.bytes);
    if (line->points.empty() || line->points.back().first != x) line->points.emplace_back(x, *us);
  }
  std::vector<Series> take() { return std::move(series_); }

 private:
  int color_of(const std::string& name) {
    const auto found = std::find(colours_.begin(), colours_.end(), name);
    const auto index = found - colours_.begin();
    if (found == colours_.end()) colours_.push_back(name);
    return static_cast<int>(index);
  }

  std::vector<Series> series_;
  std::vector<std::string> colours_;
};

Chart chart_of(const Results& group) {
  const BenchCommResult& first = group[0];
  Chart chart;
  chart.title = fmt::format("{} of {} ranks", name_of(first.operation), first.ranks);
  chart.subtitle = fmt::format("{}; median time, lower is better; dashed: predicted", first.transport);
  chart.x = {"size", Scale::kLog, Quantity::kBytes, {}, {}};
  chart.y = {"time", Scale::kLog, Quantity::kMicroseconds, {}, {}};
  // Who was asked for several algorithms wants to tell them apart; with one a size, the tuner chose.
  size_t most = 0;
  for (const BenchCommResult& r : group) {
    most = std::max<size_t>(most, static_cast<size_t>(std::count_if(group.begin(), group.end(), [&](const auto& other) {
                              return other.bytes == r.bytes && other.registered == r.registered;
                            })));
  }
  const bool several = most > 1;
  Lines lines;
  for (const BenchCommResult& r : group) {
    const std::string who = several ? r.algorithm : "ours";
    const std::string name = who + (r.registered ? "" : ", user memory");
    lines.add(name, name, r, r.us);
    lines.add(who + ", predicted", name, r, r.predicted_us, true, !several);
  }
  for (const BenchCommResult& r : group) lines.add("MPI", "MPI", r, r.mpi_us);
  for (const BenchCommResult& r : group) lines.add("Gloo", "Gloo", r, r.gloo_us);
  for (const BenchCommResult& r : group) lines.add("floor", "floor", r, r.floor_us);
  chart.series = lines.take();
  return chart;
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
  const Machine machine = this_machine();
  const auto or_null = [](const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); };
  return {{"host", machine.host},
          {"processor", machine.processor},
          {"cores", machine.cores},
          {"memory_bytes", machine.memory_bytes},
          {"kernel", machine.kernel},
          {"date", machine.date},
          {"trireme", version_text()},
          {"mpi", or_null(run.mpi_version)},
          {"gloo", or_null(run.gloo_version)}};
}

std::string machine_text(const BenchCommRun& run) {
  const Machine machine = this_machine();
  std::string text = fmt::format("{} cores, {} · trireme {}", machine.cores, machine.processor, version_text());
  if (!run.mpi_version.empty()) text += " · " + run.mpi_version;
  if (!run.gloo_version.empty()) text += " · Gloo of " + run.gloo_version;
  return text;
}

void write_plot(const std::string& path, const BenchCommRun& run) {
  const std::vector<Results> groups = grouped(run.results);
  std::string text;
  if (path.ends_with(".svg")) {
    text = to_svg(chart_of(groups.at(0)));
  } else {
    HtmlPage page("trireme bench comm");
    page.add_paragraph(machine_text(run));
    for (const Results& group : groups) page.add_chart(chart_of(group));
    text = page.to_html();
  }
  std::ofstream file(path, std::ios::trunc);
  file << text;
  file.close();
  if (!file) throw SystemError("write " + path, errno);
}

}  // namespace trireme::cli
