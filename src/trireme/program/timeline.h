// Predicts when each instruction of a pipeline runs: programs and times in, spans out. Exact, and the same on every
// machine.
//
// A rank runs its list in order. Computations take their stage's times, posts take none ([Note: Messages]); a message
// arrives `comm` after both its send and its receive have been posted. Sums over replicas and updates take no time.
#pragma once

#include "trireme/program/memory.h"
#include "trireme/program/times.h"

namespace trireme {

struct Span {
  Instruction instruction;
  double start_ms = 0;
  double end_ms = 0;
  double activations = 0;  ///< held by the rank during the span; unit as in PeakMemory
};

struct RankTimeline {
  std::vector<Span> spans;  ///< one per computation, in order
  double busy_ms = 0;
  PeakMemory peak;
};

struct Timeline {
  std::vector<RankTimeline> ranks;
  double makespan_ms = 0;  ///< time from the first start to the last end
  double cost_ms =
      0;  ///< longest time of one rank from its first start to its last end: the cost per step of a long run
  double ideal_ms = 0;  ///< m(T_F + T_B + T_W) of the busiest rank for m micro-batches, without recomputation
  /// (cost - ideal)/cost: the fraction of the cost in which the busiest rank is idle or recomputes.
  double bubble_rate = 0;
};

/// `programs`: of one replica's ranks. Throws Error for a deadlock, UsageError for times of the wrong length.
Timeline make_timeline(const std::vector<Program>& programs, const StageTimes& times);

}  // namespace trireme
