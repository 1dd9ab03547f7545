// Parts of lower_pipeline(): where messages are posted, and which weight version a computation uses.
#pragma once

#include "trireme/program/interpreter.h"
#include "trireme/program/schedules/schedule.h"

namespace trireme {

/// Adds messages to orders of computations: sends right after the computation of their content, receives early.
///
/// [Note: Early receives]
/// A receive is posted once its message is one of the next few that the rank uses from that channel, and at the latest
/// before the computation during which it would be sent if all computations took equally long. So every send finds its
/// receive posted, and there is no deadlock even if a send blocks until it is received. Receives of a channel are
/// posted in the order of its sends.
class Messages {
 public:
  explicit Messages(const Schedule& schedule);

  /// The list of a rank. On each channel, a receive is posted `receive_ahead` uses early, or earlier: see the note. If
  /// the schedule has messages already, only fills in their peers. Throws UsageError if another rank sends what this
  /// one never uses, or a message has no other end.
  std::vector<Instruction> of(int rank, int receive_ahead) const;

 private:
  struct Receive {
    Instruction instruction;
    size_t number = 0;  ///< index of the message
    double sent = 0;    ///< time of its send
  };

  const Schedule& schedule_;
  Interpreter flows_;
  std::vector<std::vector<double>> end_;  ///< times at which each rank's computations end; empty: not needed
  std::vector<size_t> used_at_;           ///< [message]: index in the receiver's order at which it is used
  std::vector<std::vector<std::vector<Receive>>> received_;  ///< [receiver][sender], in the order of the sends
};

/// Tracks the versions of a rank's weights along its order.
class WeightVersions {
 public:
  WeightVersions(const Schedule& schedule, int rank);

  /// The version that the forward and the backward pass of a micro-batch use.
  int of(int stage, int micro_batch) const { return of_[at(stage)][static_cast<size_t>(micro_batch)]; }
  int newest(int stage) const { return newest_[at(stage)]; }
  /// Call it after a forward or a backward pass. Returns whether that was the last use of a version that is not the
  /// newest.
  bool used(int stage, int micro_batch);
  /// Starts a newer version. Returns whether the one before it is still needed.
  bool update(int stage);

 private:
  static size_t at(int stage) { return static_cast<size_t>(stage); }

  std::vector<std::vector<int>> of_;      ///< [stage][micro-batch]
  std::vector<std::vector<int>> to_use_;  ///< [stage][version]: remaining uses
  std::vector<int> newest_;
};

}  // namespace trireme
