// What the ranks under check share: channels of messages, and the sums that replicas bring together.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "trireme/program/check_sums.h"

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
  Replicas(int num_replicas, const SumTree& tree, const CrossRankSum& across)
      : tree_(tree), across_(across), started_(static_cast<size_t>(num_replicas)) {}

  int count() const { return static_cast<int>(started_.size()); }
  /// A collective starts. Throws Error where another replica starts something else in its place.
  void start(int replica, const Instruction& collective);
  /// All others have started what this one has started.
  bool all_started(int replica) const;
  /// How many slots of a replica go into the sum.
  int slots_of(int replica) const;
  /// The replica's sums go into an update; with the last replica's the whole is checked.
  void bring(int replica, int stage, int group, int update, const std::vector<PartialSum>& sums);

 private:
  const SumTree& tree_;
  const CrossRankSum& across_;
  std::vector<std::vector<Instruction>> started_;  ///< [replica]
  std::map<std::tuple<int, int, int>, std::vector<std::vector<PartialSum>>> brought_;
};

}  // namespace trireme
