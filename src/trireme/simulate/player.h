// Plays programs as discrete events: each rank has a stream for computing and one for collectives.
//
// A rank runs its list in order. A computation starts when the one before it has ended, its message is there and the
// weights that it uses are gathered. A gather is asked for when the computation before its user starts; a sum, when
// the part of the backward pass that fills its group has ended (or the whole pass, without overlap). Collectives of a
// rank go one after another, and begin when all replicas that are played have come to them. Messages take their time
// and neither wait for each other nor for collectives. Where there are fewer cores than ranks that compute,
// these share them evenly.
#pragma once

#include <vector>

#include "trireme/program/timeline.h"
#include "trireme/simulate/step_lowering.h"

namespace trireme {

struct PlayCosts {
  std::vector<StageCost> stages;
  std::vector<double> message;  ///< seconds of a message that a stage sends to the next one, or gets back from it
  /// Seconds of a collective of one part of a stage, or of its push to parameter servers: [stage][part].
  std::vector<std::vector<double>> gather, reduce, push;
  std::vector<double> values;  ///< seconds of the sum of a stage's values, where they are a group of their own
  std::vector<double> update;  ///< seconds of the optimizer, by pipeline rank
  std::vector<double> combine, pull, meet;  ///< seconds of these instructions, by pipeline rank
  bool overlap = true;                      ///< collectives run while the rank computes
  bool overlap_messages = true;             ///< and messages
  bool repeats_in_backward = false;    ///< backward passes have the time of what they compute again; Recompute has none
  double cores = 0;                    ///< that all share; 0: each rank has its own device
  double sharing_cost = 0;             ///< fraction of a core's time that is lost where ranks take turns on it
  std::vector<double> processes = {};  ///< that a program stands for, by pipeline rank; with `cores` alone
};

/// A span of the stream for collectives, or of the optimizer.
struct CommSpan {
  Instruction instruction;
  double start = 0, end = 0;  ///< seconds
};

/// Seconds.
struct PlayedRank {
  double first = 0;   ///< start of the first computation
  double last = 0;    ///< end of the last
  double end = 0;     ///< with sums and the update
  double busy = 0;    ///< computing
  double idle = 0;    ///< waiting for messages, after the first computation
  double waited = 0;  ///< for collectives, between computations and before the update
  double update = 0;
  double updates_between = 0;        ///< of the updates, those before its last computation
  double peak_activation_bytes = 0;  ///< and working bytes, at most at once
  Instruction peak_at;
  std::vector<Span> spans;      ///< computations; ms
  std::vector<CommSpan> comms;  ///< collectives and the update
};

/// `programs`: of one replica or, replica by replica, of all. Throws Error where they wait for each other.
std::vector<PlayedRank> play(const std::vector<Program>& programs, const PlayCosts& costs);

}  // namespace trireme
