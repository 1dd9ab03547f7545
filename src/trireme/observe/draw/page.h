// Pages of charts and tables as HTML. Each is one file that needs nothing else; all text is escaped.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/observe/draw/chart.h"
#include "trireme/observe/table.h"

namespace trireme {

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
  void add_fractions(const std::vector<std::pair<std::string, double>>& parts);
  void add_table(const Table& table);
  /// As it is, in a fixed font, folded away under `summary`.
  void add_details(std::string_view summary, std::string_view text);
  std::string to_html() const;

 private:
  std::string title_, body_;
};

}  // namespace trireme
