// Discrete-event simulation of programs: each rank has a compute stream and a communication stream.
//
// A rank runs its list in order. A computation starts when the one before it has ended, its message has arrived and its
// weights are gathered. A gather is issued when the computation before its user starts; a sum or a push, when the part
// of the backward pass that fills its bucket has ended (without overlap: the whole pass). The communication stream of a
// rank is serial. A collective starts when all simulated replicas have reached it; pushes to parameter servers and
// pulls from them wait for no other replica. Messages between stages take their time and delay neither each other nor
// collectives. If more ranks compute than there are cores, they share the cores evenly. Pure functions. Threads: all.
#pragma once

#include <vector>

#include "trireme/program/timeline.h"
#include "trireme/simulate/step_lowering.h"

namespace trireme {

struct PlayCosts {
  std::vector<StageCost> stages;
  std::vector<double> message;  ///< seconds of a message between a stage and the next one, in either direction
  /// Seconds of the collective, or of the push to parameter servers, for one bucket: [stage][part].
  std::vector<std::vector<double>> gather, reduce, push;
  /// Seconds to all-reduce a stage's values (loss, stop flag), if they are a group of their own.
  std::vector<double> values;
  std::vector<double> update;               ///< seconds of the optimizer, by pipeline rank
  std::vector<double> combine, pull, meet;  ///< seconds of these instructions, by pipeline rank
  bool overlap = true;                      ///< collectives overlap with computing
  bool overlap_messages = true;             ///< messages between stages overlap with computing
  bool repeats_in_backward = false;  ///< the backward pass includes the time of recomputation, and Recompute takes none
  double cores = 0;                  ///< cores that all ranks share; 0: every rank has its own device
  double sharing_cost = 0;           ///< fraction of a core's time lost to context switches when ranks share it
  /// Processes that one program stands for, by pipeline rank; used with `cores` only.
  std::vector<double> processes = {};
};

/// One span of the communication stream, or the optimizer's.
struct CommSpan {
  Instruction instruction;
  double start = 0, end = 0;  ///< seconds
};

/// Timing of one rank, in seconds.
struct PlayedRank {
  double first = 0;   ///< start of the first computation
  double last = 0;    ///< end of the last computation
  double end = 0;     ///< end of the step, sums and the update included
  double busy = 0;    ///< time spent computing
  double idle = 0;    ///< time spent waiting for messages, after the first computation
  double waited = 0;  ///< time spent waiting for collectives, between computations and before the update
  double update = 0;
  double updates_between = 0;        ///< part of `update` that precedes its last computation
  double peak_activation_bytes = 0;  ///< peak of activations and workspace together
  Instruction peak_at;
  std::vector<Span> spans;      ///< computations, in ms
  std::vector<CommSpan> comms;  ///< collectives, transfers and the update
};

/// Simulates the programs of one replica, or of all replicas, replica by replica. Throws Error if they deadlock.
std::vector<PlayedRank> play(const std::vector<Program>& programs, const PlayCosts& costs);

}  // namespace trireme
