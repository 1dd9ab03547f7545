#include "trireme/program/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace trireme {
namespace {

constexpr std::string_view kFill = "─", kIdle = "·";

std::string repeat(std::string_view text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

/// A piece of one rank's line: columns first … last-1 of the whole timeline.
struct Piece {
  int first = 0, last = 0;
  std::string label;
  const OpCode* op = nullptr;
};

/// The text of a piece between two columns. A computation wider than one column ends with a blank.
std::string show(const Piece& piece, int from, int to) {
  const int first = std::max(piece.first, from), last = std::min(piece.last, to);
  if (first >= last) return "";
  if (piece.op == nullptr) return repeat(kIdle, last - first);
  std::string text;
  for (int column = first; column < last; ++column) {
    const auto at = static_cast<size_t>(column - piece.first);
    const bool gap = column == piece.last - 1 && piece.last - piece.first > 1;
    text += gap ? " " : at < piece.label.size() ? std::string(1, piece.label[at]) : std::string(kFill);
  }
  return text;
}

double shortest_span(const Timeline& timeline) {
  double shortest = std::numeric_limits<double>::infinity();
  for (const RankTimeline& rank : timeline.ranks) {
    for (const Span& span : rank.spans) {
      if (span.end_ms > span.start_ms) shortest = std::min(shortest, span.end_ms - span.start_ms);
    }
  }
  return shortest;
}

std::string short_label(const Instruction& instruction, const Program& program) {
  static constexpr std::string_view kLetters = "FBIWR";
  std::string label = fmt::format("{}{}", kLetters[static_cast<size_t>(instruction.op)], instruction.micro_batch);
  const std::vector<int> own = program.own_stages();
  if (own.size() < 2) return label;
  const auto number = std::find(own.begin(), own.end(), instruction.stage) - own.begin();
  return label + (number < 26 ? std::string(1, static_cast<char>('a' + number)) : fmt::format(".{}", number));
}

}  // namespace

std::string draw_text(const Timeline& timeline, const std::vector<Program>& programs, const DrawOptions& options) {
  std::vector<std::vector<Piece>> lines;
  size_t label_width = 0;
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    for (const Span& span : timeline.ranks[rank].spans) {
      label_width = std::max(label_width, short_label(span.instruction, programs[rank]).size());
    }
  }
  const std::string last_rank = std::to_string(programs.size() - 1);
  const int margin = static_cast<int>(fmt::format("rank {} ", last_rank).size());
  const int width = std::max(options.width - margin - 1, 20);
  const double end = timeline.makespan_ms;
  if (!(end > 0)) return "";
  const double scale = std::min((static_cast<double>(label_width) + 1) / shortest_span(timeline), 10.0 * width / end);
  const auto column = [&](double ms) { return static_cast<int>(std::lround(ms * scale)); };
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    std::vector<Piece>& line = lines.emplace_back();
    int at = 0;
    for (const Span& span : timeline.ranks[rank].spans) {
      if (column(span.start_ms) > at) line.push_back({at, column(span.start_ms), "", nullptr});
      at = column(span.end_ms);
      line.push_back({column(span.start_ms), at, short_label(span.instruction, programs[rank]), &span.instruction.op});
    }
    if (at < column(end)) line.push_back({at, column(end), "", nullptr});
  }
  // Pictures of about the same width, a multiple of the shortest computation's.
  const int cell = static_cast<int>(label_width) + 1, num_pictures = (column(end) + width - 1) / width;
  const int even = ((column(end) + num_pictures - 1) / num_pictures + cell - 1) / cell * cell;
  const int shown = num_pictures == 1 ? width : std::min(even, width);
  std::string text;
  for (int from = 0; from < column(end); from += shown) {
    const int to = std::min(from + shown, column(end));
    if (from > 0) text += "\n";
    if (num_pictures > 1) text += fmt::format("{:.4g} to {:.4g} ms\n", from / scale, to / scale);
    for (size_t rank = 0; rank < programs.size(); ++rank) {
      text += fmt::format("rank {:>{}} ", rank, last_rank.size());
      for (const Piece& piece : lines[rank]) {
        const std::string part = show(piece, from, to);
        text += options.paint && !part.empty() ? options.paint(part, piece.op) : part;
      }
      while (text.ends_with(' ')) text.pop_back();
      text += "\n";
    }
  }
  return text;
}

}  // namespace trireme
