// Tables for people: aligned on a terminal, Markdown for documents, HTML for reports.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme {

enum class Align {
  kAuto,  ///< right if all cells of the column look like numbers, else left
  kLeft,
  kRight,
};

struct Column {
  std::string header;
  Align align = Align::kAuto;

  Column(std::string header_, Align align_ = Align::kAuto) : header(std::move(header_)), align(align_) {}
  Column(const char* header_) : header(header_) {}
};

struct TextOptions {
  bool bold_header = false;  ///< has_colour() of where it goes
  bool rule = false;         ///< a line under the header
  int indent = 0;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// Missing cells are empty; throws UsageError if there are more cells than columns.
  void add_row(std::vector<std::string> cells);
  size_t num_rows() const { return rows_.size(); }
  bool empty() const { return rows_.empty(); }

  /// Each line ends with a newline. Lines have no spaces at their ends.
  std::string to_text(const TextOptions& options = {}) const;
  std::string to_markdown() const;
  /// A <table>, its cells escaped.
  std::string to_html() const;

 private:
  std::vector<bool> right_aligned() const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// & < > " ' as entities; control characters, which XML forbids, as spaces.
std::string escape_html(std::string_view text);

}  // namespace trireme
