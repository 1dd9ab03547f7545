// Parameter servers on the ranks of a job: started together, known to all.
#pragma once

#include <memory>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/server/server.h"

namespace trireme::server {

struct ServersOfJob {
  std::vector<std::unique_ptr<Server>> own;  ///< on this rank; they end with this value
  std::vector<SocketAddress> addresses;      ///< of all servers, by index
  control::Credentials credentials;          ///< made for these servers, and sent over the ranks' own connections
};

/// Server i becomes a thread of rank i modulo the number of ranks, so that the two servers of a replicated shard are on
/// different ranks where there are several. Collective. `options` says all but index, number and credentials; `bind` is
/// the address by which the other hosts reach this one. Throws UsageError, SystemError and CommError.
ServersOfJob start_servers(Communicator& comm, int num_servers, const ServerOptions& options = {});

}  // namespace trireme::server
