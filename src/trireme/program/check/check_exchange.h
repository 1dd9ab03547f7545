// Tracks what ranks under check exchange: messages over channels, and sums over replicas.
#pragma once

#include <compare>
#include <map>
#include <vector>

#include "trireme/program/check/check_sums.h"

namespace trireme {

/// Messages from one rank to another, in order, as sent and as posted by the receiver.
struct Channel {
  std::vector<PipelineMessage> sent, posted;
};

/// All channels of the job. Ranks are indices of programs.
class Channels {
 public:
  /// Throws Error if the two ends disagree on a message.
  void send(size_t from, size_t to, const PipelineMessage& message) { add(from, to, message, &Channel::sent); }
  void post(size_t from, size_t to, const PipelineMessage& message) { add(from, to, message, &Channel::posted); }
  /// Call it at the end. Throws Error if a message has only one end.
  void finish() const;

 private:
  void add(size_t from, size_t to, const PipelineMessage& message, std::vector<PipelineMessage> Channel::*end);

  std::map<std::pair<size_t, size_t>, Channel> channels_;
};

/// The replicas of one pipeline rank.
class Replicas {
 public:
  struct Sum {
    int stage = -1, group = 0, update = 0;
    auto operator<=>(const Sum&) const = default;
  };
  Replicas(int num_replicas, const SumTree& tree, const CrossRankSum& across)
      : tree_(tree), across_(across), count_(num_replicas) {}

  int count() const { return count_; }
  /// A replica starts its collective with this number. Throws Error if another replica started a different one there.
  void start(size_t number, const Instruction& collective);
  /// Number of slots that a replica contributes to the sum.
  int slots_of(int replica) const;
  /// Contributes a replica's sums to an update. The last replica's call checks the total; throws Error if it is wrong.
  void bring(int replica, const Sum& sum, const std::vector<PartialSum>& sums);
  /// bring() for micro-batches that are summed outside the tree.
  void bring_micro_batches(const Sum& sum, const std::vector<int>& micro_batches);

 private:
  struct Brought {
    int replicas = 0;
    std::vector<std::vector<PartialSum>> sums;  ///< [replica]
    std::vector<int> micro_batches;
  };

  const SumTree& tree_;
  const CrossRankSum& across_;
  const int count_;
  std::vector<Instruction> sequence_;  ///< the collectives that all replicas must start, in order
  std::map<Sum, Brought> brought_;     ///< sums to which some replicas have not contributed yet
};

}  // namespace trireme
