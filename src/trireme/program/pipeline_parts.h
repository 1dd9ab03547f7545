// The parts of lower_pipeline(): where messages are posted, and which weights a computation uses.
#pragma once

#include "trireme/program/interpreter.h"
#include "trireme/program/schedules/schedule.h"

namespace trireme {

/// Adds messages to orders of computation: sends right behind what they carry, receives posted early.
///
/// [Note: Early receives]
/// A receive is posted once its message is one of the next few that the rank uses from that channel; and in any case
/// before the computation during which, all computations taking about as long, it would be sent. Then every send finds
/// its receive posted, so nobody waits for ever, even where a send cannot return before it is received. Receives of a
/// channel are posted in the order of its sends.
class Messages {
 public:
  explicit Messages(const Schedule& schedule);

  /// A rank's list. An order that has messages already gets their peers. Throws Error where another rank sends what
  /// this one never uses.
  std::vector<Instruction> of(int rank, int receive_ahead) const;

 private:
  struct Receive {
    Instruction instruction;
    size_t number = 0;  ///< of the message
    double sent = 0;    ///< when it would be
  };

  const Schedule& schedule_;
  Interpreter flows_;
  std::vector<std::vector<double>> end_;  ///< when each rank's computations would end; empty: not needed
  std::vector<size_t> used_at_;           ///< where in its receiver's order each message is used
  std::vector<std::vector<std::vector<Receive>>>
      received_;  ///< [receiver][sender]: in the order in which they are sent
};

/// The versions of a rank's weights, as its order goes along.
class WeightVersions {
 public:
  WeightVersions(const Schedule& schedule, int rank);

  /// That the forward and the backward pass of a micro-batch use.
  int of(int stage, int micro_batch) const { return of_[at(stage)][static_cast<size_t>(micro_batch)]; }
  int newest(int stage) const { return newest_[at(stage)]; }
  /// After a forward or a backward pass; true if that was the last use of a version that is not the newest.
  bool used(int stage, int micro_batch);
  /// A newer version comes; true if the one before it is still needed.
  bool update(int stage);

 private:
  static size_t at(int stage) { return static_cast<size_t>(stage); }

  std::vector<std::vector<int>> of_;      ///< [stage][micro-batch]
  std::vector<std::vector<int>> to_use_;  ///< [stage][version]: how many uses are to come
  std::vector<int> newest_;
};

}  // namespace trireme
