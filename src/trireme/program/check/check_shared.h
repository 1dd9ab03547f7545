// What the ranks under check share: channels of messages, and the sums that replicas bring together.
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
  Channel& between(int from, int to) { return channels_[{from, to}]; }
  /// Throws Error where the two ends disagree on a message.
  void send(int from, int to, const PipelineMessage& message) { add(from, to, message, &Channel::sent); }
  void post(int from, int to, const PipelineMessage& message) { add(from, to, message, &Channel::posted); }
  /// Throws Error where a message has one end only.
  void finish() const;

 private:
  void add(int from, int to, const PipelineMessage& message, std::vector<PipelineMessage> Channel::*end);

  std::map<std::pair<int, int>, Channel> channels_;
};

/// The replicas of one pipeline rank.
class Replicas {
 public:
  struct Sum {
    int stage = -1, group = 0, update = 0;
    auto operator<=>(const Sum&) const = default;
  };
  Replicas(int num_replicas, const SumTree& tree, const CrossRankSum& across)
      : tree_(tree), across_(across), started_(static_cast<size_t>(num_replicas)) {}

  int count() const { return static_cast<int>(started_.size()); }
  /// A collective starts. Throws Error where another replica starts something else in its place.
  void start(int replica, const Instruction& collective);
  /// All others have started what this one has started.
  bool all_started(int replica) const {
    const size_t own = started_[static_cast<size_t>(replica)];
    return own == 0 || reached_[own - 1] == count();
  }
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
  std::vector<size_t> started_;        ///< of each replica: how many collectives
  std::vector<Instruction> sequence_;  ///< the collectives that all must start, in order
  std::vector<int> reached_;           ///< by how many replicas each of them has been started
  std::map<Sum, Brought> brought_;     ///< those that replicas are missing of
};

}  // namespace trireme
