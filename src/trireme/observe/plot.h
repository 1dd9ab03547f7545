// Line charts as SVG, and pages of charts and tables as HTML. Each is one file that needs nothing else.
//
// Charts follow the reader's light or dark setting and show exact values under the mouse. All text is escaped.
// Points that cannot be drawn (not finite, or not above 0 on a logarithmic axis) leave a gap in their line.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/observe/table.h"

namespace trireme {

enum class Scale { kLinear, kLog };

struct PlotAxis {
  std::string label;
  Scale scale = Scale::kLinear;
  std::optional<double> min, max;  ///< from the data where not given
};

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;
  bool dashed = false;  ///< a prediction: dashed, without markers
  int color = -1;       ///< number in the palette, so that a prediction can look like its measurement; -1: the next
  bool in_legend = true;
  bool faint = false;  ///< background of a smoothed line of the same colour: thin, pale, silent under the mouse
};

struct Chart {
  std::string title;
  std::string subtitle;
  PlotAxis x, y;
  std::vector<Series> series;
  int width = 880, height = 440;
};

/// An <svg> element, also good as a file of its own.
std::string to_svg(const Chart& chart);

/// How a verdict looks.
enum class Tone { kGood, kBad, kNeutral };

/// A page that is built from top to bottom.
class HtmlPage {
 public:
  explicit HtmlPage(std::string title) : title_(std::move(title)) {}
  void add_heading(std::string_view text);
  void add_paragraph(std::string_view text);
  /// A paragraph that stands out: a short verdict, then the rest.
  void add_verdict(std::string_view verdict, Tone tone, std::string_view text);
  /// Few numbers in large letters: name, value.
  void add_facts(const std::vector<std::pair<std::string, std::string>>& facts);
  void add_chart(const Chart& chart);
  /// Beside each other where the window is wide enough.
  void add_charts(const std::vector<Chart>& charts);
  /// One bar cut into its parts, with a legend; what is not above 0 is left out.
  void add_shares(const std::vector<std::pair<std::string, double>>& parts);
  void add_table(const Table& table);
  /// As it is, in a fixed font, folded away under `summary`.
  void add_details(std::string_view summary, std::string_view text);
  std::string to_html() const;

 private:
  std::string title_, body_;
};

}  // namespace trireme
