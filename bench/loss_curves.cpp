// Draws curves of losses as SVG, for the scripts beside it: bench_loss_curves FILE.svg TITLE SUBTITLE X-LABEL [TARGET]
//
// Standard input has a line a point: the name of its curve, a tab, x, a tab, the loss. Curves keep the order in which
// they come; a target is a dashed line.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iostream>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/observe/append_file.h"
#include "trireme/observe/draw/chart.h"

namespace trireme {
namespace {

double number_in(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw UsageError(fmt::format("\"{}\" is no number", text), "a line is NAME, X and LOSS with tabs between them");
  }
  return value;
}

std::vector<Series> read_curves() {
  std::vector<Series> curves;
  for (std::string line; std::getline(std::cin, line);) {
    const auto parts = split(line, '\t');
    if (parts.size() != 3) throw UsageError(fmt::format("\"{}\" is not NAME, X and LOSS with tabs between them", line));
    auto at = std::find_if(curves.begin(), curves.end(), [&](const Series& each) { return each.name == parts[0]; });
    if (at == curves.end()) {
      at = curves.emplace(at);
      at->name = parts[0];
    }
    at->points.emplace_back(number_in(parts[1]), number_in(parts[2]));
  }
  return curves;
}

void draw(const std::vector<std::string>& words) {
  if (words.size() < 4 || words.size() > 5) {
    throw UsageError(fmt::format("{} words were given", words.size()),
                     "bench_loss_curves FILE.svg TITLE SUBTITLE X-LABEL [TARGET]");
  }
  Chart chart;
  chart.title = words[1];
  chart.subtitle = words[2];
  chart.series = read_curves();
  double last = 0;
  for (const Series& curve : chart.series) {
    for (const auto& [x, loss] : curve.points) last = std::max(last, x);
  }
  if (words.size() == 5) {
    const double target = number_in(words[4]);
    chart.series.push_back(
        {.name = fmt::format("target {}", target), .points = {{0, target}, {last, target}}, .dashed = true});
  }
  chart.x.label = words[3];
  chart.x.min = 0;
  chart.y.label = "held-out loss";
  replace_file(words[0], to_svg(chart));
}

}  // namespace
}  // namespace trireme

int main(int count, char** words) try {
  trireme::draw({words + 1, words + count});
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", error.what());
  return 1;
}
