// Gossip: ranks average with neighbours only, and agree in the course of time.
//
// Every round is a doubly stochastic mixing, so that the mean over ranks stays what it was, up to rounding. A ring
// averages with both neighbours; the exponential graph with one rank a round, 1, 2, 4, … places away, and for 2^n ranks
// n rounds give the exact mean. Collective; threads: one; blocking and failure: as the communicator.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme {

enum class GossipGraph { kRing, kExponential };
std::string_view name_of(GossipGraph graph);
/// Throws UsageError.
GossipGraph gossip_graph_named(std::string_view name);

/// Whom a rank sends its values to in a round, and from whom it receives; empty with one rank.
struct GossipPeers {
  std::vector<int> to, from;
};
GossipPeers gossip_peers(GossipGraph graph, int rank, int num_ranks, uint64_t round);

class Gossip {
 public:
  Gossip(Communicator& comm, GossipGraph graph) : comm_(comm), graph_(graph) {}
  /// One round; `round` is the same on all ranks.
  void mix(std::span<float> values, uint64_t round);
  uint64_t bytes_sent() const { return bytes_sent_; }

 private:
  Communicator& comm_;
  GossipGraph graph_;
  std::vector<std::vector<float>> arrived_;
  uint64_t bytes_sent_ = 0;
};

}  // namespace trireme
