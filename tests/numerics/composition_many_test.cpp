// All of what goes with what, and the table of it in docs/composition.md.
// ctest: slow timeout=1800
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "numerics/composition_cases.h"
#include "support/paths.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

const char* const kHead = R"(# What goes with what

Written by `composition_many_test`, which trains every combination for 10 steps on two replicas (times `tp` times `pp` threads),
or finds it refused. `equal`: losses, norms, weights and moments are those of the same training without sharing, pipeline,
recomputation and servers, to the bit. `learns`: the loss falls by at least 80 % of what it falls without compression; with `topk`,
which sends a hundredth, by 20 % (on its way to servers, where it chooses in each tensor for itself, by 15 %). A number is a reason
below. Recomputation changes nothing in the table, so its rows stand for both.

)";

TEST(CompositionMany, EverythingTrainsOrIsRefused) {
  std::map<Composed, Outcome> references;
  std::map<std::string, std::vector<std::string>> rows;
  std::vector<std::string> order, reasons;
  for (const Composed& each : all_composed()) {
    SCOPED_TRACE(each.to_string());
    std::string cell = verdict_of(each, references);
    if (cell.starts_with("refused: ")) {
      const std::string reason = cell.substr(9);
      auto found = std::find(reasons.begin(), reasons.end(), reason);
      if (found == reasons.end()) found = reasons.insert(reasons.end(), reason);
      cell = fmt::format("({})", found - reasons.begin() + 1);
    }
    const std::string row =
        fmt::format("| {} | {} | {} | {} | {} |", each.aggregation, each.compression, each.tp, each.pp, each.precision);
    std::vector<std::string>& cells = rows[row];
    if (cells.empty()) order.push_back(row);
    if (cells.size() < 4) {
      cells.push_back(cell);
    } else {
      EXPECT_EQ(cells[static_cast<size_t>(each.zero)], cell) << "recomputation makes a difference";
    }
  }
  std::string text = kHead;
  text += "| aggregation | compression | tp | pp | precision | zero 0 | zero 1 | zero 2 | zero 3 |\n";
  text += "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";
  for (const std::string& row : order) {
    text += row;
    for (const std::string& cell : rows[row]) text += " " + cell + " |";
    text += "\n";
  }
  text += "\n";
  for (size_t i = 0; i < reasons.size(); ++i) text += fmt::format("{}. {}\n", i + 1, reasons[i]);
  text += rules_text();

  const std::string path = source_path("docs/composition.md");
  if (std::getenv("TRIREME_WRITE_COMPOSITION")) std::ofstream(path) << text;
  std::stringstream committed;
  committed << std::ifstream(path).rdbuf();
  EXPECT_EQ(committed.str(), text) << "out of date: run this test with TRIREME_WRITE_COMPOSITION=1";
}

}  // namespace
}  // namespace trireme
