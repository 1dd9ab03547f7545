#include "trireme/server/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/base/sha256.h"

namespace trireme::server {
namespace {

constexpr size_t kHostBytes = 62;  // the longest numeric address has 45 letters

}  // namespace

ServersOfJob start_servers(Communicator& comm, int num_servers, const ServerOptions& options) {
  if (num_servers < 1) throw UsageError(fmt::format("{} parameter servers", num_servers), "start one or more");
  if (is_wildcard(options.bind)) {
    throw UsageError(fmt::format("workers cannot connect to {}", options.bind), "give the address of one interface");
  }
  ServersOfJob job;
  std::vector<uint8_t> secret(64);
  if (comm.rank() == 0) fill_random(std::as_writable_bytes(std::span(secret)));
  comm.broadcast(secret, 0);
  job.credentials.token = to_hex(std::as_bytes(std::span(secret)).first(32));
  job.credentials.job = sha256(to_hex(std::as_bytes(std::span(secret)).subspan(32)));

  const size_t entry = kHostBytes + sizeof(uint16_t);
  const auto ranks = static_cast<size_t>(comm.size()), servers = static_cast<size_t>(num_servers);
  const size_t most = (servers + ranks - 1) / ranks;
  std::vector<uint8_t> mine(most * entry), all(mine.size() * ranks);
  for (size_t index = static_cast<size_t>(comm.rank()); index < servers; index += ranks) {
    ServerOptions own = options;
    own.index = static_cast<int>(index);
    own.num_servers = num_servers;
    own.credentials = job.credentials;
    uint8_t* to = mine.data() + job.own.size() * entry;
    job.own.push_back(std::make_unique<Server>(std::move(own)));
    const SocketAddress address = job.own.back()->address();
    std::copy_n(address.host.begin(), std::min(address.host.size(), kHostBytes - 1), to);
    std::memcpy(to + kHostBytes, &address.port, sizeof address.port);
  }
  comm.all_gather(mine, all);
  for (size_t index = 0; index < servers; ++index) {
    const uint8_t* from = all.data() + (index % ranks) * mine.size() + index / ranks * entry;
    SocketAddress address{reinterpret_cast<const char*>(from), 0};
    std::memcpy(&address.port, from + kHostBytes, sizeof address.port);
    job.addresses.push_back(std::move(address));
  }
  for (const auto& server : job.own) server->start(job.addresses);
  return job;
}

}  // namespace trireme::server
