#include "trireme/observe/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/observe/style.h"

namespace trireme {
namespace {

constexpr std::string_view kGap = "  ";

bool is_blank(std::string_view cell) {
  static constexpr std::array<std::string_view, 5> kBlanks = {"", "-", "—", "n/a", "?"};
  return std::find(kBlanks.begin(), kBlanks.end(), cell) != kBlanks.end();
}

/// "4,980", "-3", "1.2x", "~ 10 ms", "$3", "±0.5".
bool is_number(std::string_view cell) {
  for (const std::string_view sign : {"~", "≈", "<", ">", "$", "+", "-", "−", "±", "×"}) {
    if (cell.starts_with(sign)) cell = trim(cell.substr(sign.size()));
  }
  if (cell.starts_with('.')) cell.remove_prefix(1);
  return !cell.empty() && cell[0] >= '0' && cell[0] <= '9';
}

std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r' || c == '\t'; }, ' ');
  return text;
}

std::string padded(const std::string& text, int width, bool right) {
  const std::string space(static_cast<size_t>(std::max(0, width - display_width(text))), ' ');
  return right ? space + text : text + space;
}

void strip_end(std::string& line) { line.erase(line.find_last_not_of(' ') + 1); }

std::string markdown_cell(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '|' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

}  // namespace

void Table::add_row(std::vector<std::string> cells) {
  if (cells.size() > columns_.size()) {
    throw UsageError(fmt::format("a row of {} cells in a table of {} columns", cells.size(), columns_.size()));
  }
  cells.resize(columns_.size());
  for (std::string& cell : cells) cell = one_line(std::move(cell));
  rows_.push_back(std::move(cells));
}

std::vector<bool> Table::right_aligned() const {
  std::vector<bool> right(columns_.size());
  for (size_t i = 0; i < columns_.size(); ++i) {
    bool any = false, all = true;
    for (const auto& row : rows_) {
      if (is_blank(row[i])) continue;
      any = true;
      all = all && is_number(row[i]);
    }
    right[i] = columns_[i].align == Align::kRight || (columns_[i].align == Align::kAuto && any && all);
  }
  return right;
}

std::string Table::to_text(const TextOptions& options) const {
  const std::vector<bool> right = right_aligned();
  std::vector<int> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    int width = display_width(columns_[i].header);
    for (const auto& row : rows_) width = std::max(width, display_width(row[i]));
    widths.push_back(width);
  }
  std::string text;
  const auto add_line = [&](const auto& cell_of, bool bold) {
    std::string line;
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (i > 0) line += kGap;
      line += padded(cell_of(i), widths[i], right[i]);
    }
    strip_end(line);
    if (!line.empty()) text += std::string(static_cast<size_t>(options.indent), ' ');
    text += emphasised(line, Emphasis::kBold, bold && !line.empty());
    text += '\n';
  };
  add_line([&](size_t i) { return one_line(columns_[i].header); }, options.bold_header);
  if (options.rule) {
    add_line(
        [&](size_t i) {
          std::string rule;
          for (int j = 0; j < widths[i]; ++j) rule += "─";
          return rule;
        },
        false);
  }
  for (const auto& row : rows_) {
    add_line([&](size_t i) { return row[i]; }, false);
  }
  return text;
}

std::string Table::to_markdown() const {
  const std::vector<bool> right = right_aligned();
  std::vector<int> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    int width = std::max(3, display_width(markdown_cell(columns_[i].header)));
    for (const auto& row : rows_) width = std::max(width, display_width(markdown_cell(row[i])));
    widths.push_back(width);
  }
  std::string text;
  const auto add_line = [&](const auto& cell_of) {
    for (size_t i = 0; i < columns_.size(); ++i) text += "| " + padded(cell_of(i), widths[i], right[i]) + " ";
    text += "|\n";
  };
  add_line([&](size_t i) { return markdown_cell(one_line(columns_[i].header)); });
  add_line([&](size_t i) {
    std::string rule(static_cast<size_t>(widths[i]), '-');
    if (right[i]) rule.back() = ':';
    return rule;
  });
  for (const auto& row : rows_) {
    add_line([&](size_t i) { return markdown_cell(row[i]); });
  }
  return text;
}

std::string Table::to_html() const {
  const std::vector<bool> right = right_aligned();
  std::string text = "<table>\n<thead><tr>";
  const auto add_cell = [&](const char* tag, size_t i, const std::string& cell) {
    text += fmt::format("<{0}{1}>{2}</{0}>", tag, right[i] ? " class=\"number\"" : "", escape_html(cell));
  };
  for (size_t i = 0; i < columns_.size(); ++i) add_cell("th", i, columns_[i].header);
  text += "</tr></thead>\n<tbody>\n";
  for (const auto& row : rows_) {
    text += "<tr>";
    for (size_t i = 0; i < columns_.size(); ++i) add_cell("td", i, row[i]);
    text += "</tr>\n";
  }
  return text + "</tbody>\n</table>\n";
}

std::string escape_html(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' ? ' ' : c;
    }
  }
  return escaped;
}

}  // namespace trireme
