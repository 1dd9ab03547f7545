#include "trireme/compress/gossip.h"

#include <fmt/format.h>

#include <bit>

#include "trireme/base/error.h"
#include "trireme/compress/arithmetic.h"

namespace trireme {

std::string_view name_of(GossipGraph graph) { return graph == GossipGraph::kRing ? "ring" : "exponential"; }

GossipGraph gossip_graph_named(std::string_view name) {
  for (const GossipGraph graph : {GossipGraph::kRing, GossipGraph::kExponential}) {
    if (name == name_of(graph)) return graph;
  }
  throw UsageError(fmt::format("no graph of neighbours is called \"{}\"", name), "there are ring and exponential");
}

GossipPeers gossip_peers(GossipGraph graph, int rank, int num_ranks, uint64_t round) {
  const auto at = [&](int distance) { return ((rank + distance) % num_ranks + num_ranks) % num_ranks; };
  if (num_ranks == 1) return {};
  if (graph == GossipGraph::kRing) {
    if (num_ranks == 2) return {{at(1)}, {at(1)}};  // both neighbours are the same rank
    return {{at(1), at(-1)}, {at(-1), at(1)}};
  }
  const auto num_distances = static_cast<uint64_t>(std::bit_width(static_cast<unsigned>(num_ranks - 1)));
  const int distance = 1 << (round % num_distances);
  return {{at(distance)}, {at(-distance)}};
}

void Gossip::mix(std::span<float> values, uint64_t round) {
  const GossipPeers peers = gossip_peers(graph_, comm_.rank(), comm_.size(), round);
  if (peers.to.empty()) return;
  arrived_.resize(peers.to.size());
  for (size_t i = 0; i < peers.to.size(); ++i) {
    arrived_[i].resize(values.size());
    comm_.send_recv(values, peers.to[i], arrived_[i], peers.from[i], static_cast<uint32_t>(i));
    bytes_sent_ += values.size_bytes();
  }
  for (const std::vector<float>& other : arrived_) add_into(values, other);
  scale_by(values, 1.f / static_cast<float>(arrived_.size() + 1));
}

}  // namespace trireme
