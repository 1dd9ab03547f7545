// Draws timelines: as text for a terminal, and as SVG.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "trireme/program/timeline.h"

namespace trireme {

struct DrawOptions {
  int width = 80;  ///< columns; a longer timeline continues below
  /// Colours a piece of the drawing: a computation, or idle time (op = nullptr). Empty: no colours.
  std::function<std::string(std::string_view text, const OpCode* op)> paint = {};
};

/// One line per rank, of "F3", "B3", "I3", "W3", "R3" (micro-batch 3); with several stages per rank, "F3a" for the
/// first of them, "F3b" … The shortest computation is as wide as its label, unless that takes more than ten pictures
/// below each other; labels are then cut off.
std::string draw_text(const Timeline& timeline, const std::vector<Program>& programs, const DrawOptions& options);

/// Memory held from an instant on, until the next entry.
struct Held {
  double from_ms = 0;
  double amount = 0;
};

/// What to draw for a rank in addition to its computations.
struct RankExtras {
  std::vector<Span> beside;  ///< collectives, drawn in a thin lane below; updates, drawn among the computations
  std::vector<Held> held;    ///< GB; replaces the timeline's activations in micro-batches
};

/// Additions for a whole step; empty if only computations were timed.
struct SvgExtras {
  std::vector<RankExtras> ranks;
  double step_from_ms = 0, step_to_ms = 0;  ///< extent of the step, marked below the axis
};

/// An <svg> element, which is also a valid file: computations, with their times as tooltips, and below each rank's line
/// the memory that it holds. Follows the reader's light or dark theme.
std::string draw_svg(const Timeline& timeline, const std::vector<Program>& programs, std::string_view title,
                     const SvgExtras& extras = {});

}  // namespace trireme
