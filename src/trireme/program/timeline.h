// When each instruction of a pipeline would run: programs and times in, spans out. Exact, and the same on every
// machine.
//
// A rank runs its list in order. Computations take their stage's times, posts take none ([Note: Messages]); a message
// is there `comm` after it has been sent and its receive posted. Sums over replicas and updates are not timed.
#pragma once

#include "trireme/program/memory.h"
#include "trireme/program/times.h"

namespace trireme {

struct Span {
  Instruction instruction;
  double start_ms = 0;
  double end_ms = 0;
  double activations = 0;  ///< that the rank holds once it has begun: of its part of a micro-batch
};

struct RankTimeline {
  std::vector<Span> spans;  ///< of computations, in order
  double busy_ms = 0;
  PeakMemory peak;
};

struct Timeline {
  std::vector<RankTimeline> ranks;
  double makespan_ms = 0;  ///< from the first start to the last end
  double cost_ms = 0;   ///< the longest that one rank takes from its start to its end: what a long run of steps costs
  double ideal_ms = 0;  ///< m(T_F + T_B + T_W) of the busiest rank, without recomputation
  /// (cost - ideal)/cost: the fraction of it in which the busiest rank is idle, or repeats itself.
  double bubble_rate = 0;
};

/// Of one replica's programs. Throws Error where they wait for each other, UsageError for times of another length.
Timeline make_timeline(const std::vector<Program>& programs, const StageTimes& times);

}  // namespace trireme
