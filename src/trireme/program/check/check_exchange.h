// What the ranks under check exchange: messages over channels, and the sums of replicas.
#pragma once

#include <compare>
#include <map>
#include <vector>

#include "trireme/program/check/check_sums.h"

namespace trireme {

/// From one rank to another, in order.
struct Channel {
  std::vector<PipelineMessage> sent, posted;
};

/// Ranks are those of the world.
class Channels {
 public:
  /// Throws Error where the two ends disagree on a message.
  void send(size_t from, size_t to, const PipelineMessage& message) { add(from, to, message, &Channel::sent); }
  void post(size_t from, size_t to, const PipelineMessage& message) { add(from, to, message, &Channel::posted); }
  /// Throws Error where a message has one end only.
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
  /// A replica starts its collective of this number. Throws Error where another one starts something else there.
  void start(size_t number, const Instruction& collective);
  /// How many slots of a replica go into the sum.
  int slots_of(int replica) const;
  /// The replica's sums go into an update; with the last replica's the whole is checked.
  void bring(int replica, const Sum& sum, const std::vector<PartialSum>& sums);
  /// The same of micro-batches that are summed one by one, in no tree.
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
  std::vector<Instruction> sequence_;  ///< the collectives that all must start, in order
  std::map<Sum, Brought> brought_;     ///< those that replicas are missing of
};

}  // namespace trireme
