// What all communicators of one rank share: the control plane, the memory, the hosts, and how to reach a peer.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "trireme/comm/algorithms/tuner.h"
#include "trireme/comm/control/control.h"
#include "trireme/comm/host/address_space.h"
#include "trireme/comm/transport/link.h"
#include "trireme/mesh/topology.h"

namespace trireme {

class FlightRecorder;

struct RankContext {
  int rank = 0, size = 1;
  std::unique_ptr<ControlPlane> control;
  std::unique_ptr<AddressSpace> space;
  /// Ranks with the same number share memory.
  Topology hosts{std::vector<int>{0}};
  /// Ranks with the same number could share memory, whether they are told to or not.
  Topology machines{std::vector<int>{0}};
  /// Makes a link to a rank of another host; the channel is the group's.
  std::function<std::unique_ptr<Link>(int peer_world_rank, uint64_t channel)> make_remote_link;
  std::string transport;
  std::chrono::milliseconds call_timeout{300'000};
  bool cores_are_scarce = false;  ///< more ranks than cores on this host
  Tuner tuner;

  bool same_host(int a, int b) const { return hosts.host_of(a) == hosts.host_of(b); }
  /// "rank 3 (node-b, pid 8123)".
  std::string describe(int world_rank) const;

  /// Memory of groups that this rank has left but that peers may still be reading.
  struct Retired {
    const std::atomic<uint32_t>* left = nullptr;  ///< null: kept until the world ends
    uint32_t members = 0;
    std::vector<void*> memory;
  };
  std::mutex retired_mutex;
  std::vector<Retired> retired;
  /// Releases what nobody can reach any more; `all`, when no peer is left.
  void sweep_retired(bool all = false);

  // Recorders that are dumped on request: see flight_dump.h.
  std::mutex recorders_mutex;
  std::vector<std::pair<std::string, const FlightRecorder*>> recorders;
};

/// The communicator of all ranks of the world. Its board and mailbox are at fixed places.
std::unique_ptr<class Communicator> make_world_communicator(std::shared_ptr<RankContext> context);

}  // namespace trireme
