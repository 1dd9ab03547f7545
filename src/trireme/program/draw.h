// Timelines as pictures: for a terminal, and as SVG.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "trireme/program/timeline.h"

namespace trireme {

struct DrawOptions {
  int width = 80;  ///< columns; a longer timeline goes on below
  /// Gives a piece of the drawing its colour: a computation, or idle time (nullptr). None: plain.
  std::function<std::string(std::string_view text, const OpCode* op)> paint = {};
};

/// One line a rank, of "F3", "B3", "I3", "W3", "R3" (micro-batch 3); with several stages a rank, "F3a" on the first
/// of them, "F3b" … The shortest computation is as wide as its label, but the whole no more than ten pictures below
/// each other: labels are cut then.
std::string draw_text(const Timeline& timeline, const std::vector<Program>& programs, const DrawOptions& options);

/// What somebody holds from an instant on.
struct Held {
  double from_ms = 0;
  double amount = 0;
};

/// What is known of a rank beside its computations.
struct RankExtras {
  std::vector<Span> beside;  ///< collectives, for a thin lane below computations; updates, which are boxes among them
  std::vector<Held> held;    ///< gigabytes, instead of activations in micro-batches
};

/// Of a whole step; empty where computations alone were timed.
struct SvgExtras {
  std::vector<RankExtras> ranks;
  double step_from_ms = 0, step_to_ms = 0;  ///< what is called the step: marked below the axis
};

/// An <svg> element, also good as a file of its own: computations with their times under the mouse, and below each
/// rank's line the activations that it holds. Follows the reader's light or dark setting.
std::string draw_svg(const Timeline& timeline, const std::vector<Program>& programs, std::string_view title,
                     const SvgExtras& extras = {});

}  // namespace trireme
