// A parameter server: has a shard of the weights, sums gradients, updates, answers.
//
// Owner: the caller, as a thread of any process (a rank that works as well, or one that does nothing else). Threads:
// all functions may be called from any thread; the server itself is one thread. Blocking: only stop() and
// wait_until_done(). Failure: the constructor throws; afterwards a bad client is dropped and told why, and nothing that
// comes over a socket ends the process.
//
// [Note: Replication]
// With replication, shard k lives on servers k (its home) and k+1 (modulo their number): one is primary, the other
// applies the same events in the same order. The primary answers nobody before the other has acknowledged all events
// that the answer depends on. When a connection between the two ends, each asks whether the other still lives:
//
//   the backup finds the primary gone       it becomes primary, with an epoch one higher
//   the primary finds the backup gone       it goes on alone, and says so in the log
//   a server comes (back)                   whoever is primary sends it the whole shard, then the events
//   two believe to be primary               the lower epoch steps down
//
// "Gone" is a refused connection, or silence for ServerOptions::silence. A network that parts two servers which both
// still reach workers is not survived: that would need a third voice.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/base/deadline.h"
#include "trireme/comm/control/control_handshake.h"
#include "trireme/server/shard/shard.h"

namespace trireme::server {

struct ServerOptions {
  int index = 0, num_servers = 1;
  control::Credentials credentials;  ///< of the job: what every worker and server must prove to know
  std::string bind = "127.0.0.1";    ///< numeric
  uint16_t port = 0;                 ///< 0: a free one
  bool replicate = false;            ///< as in Settings
  std::vector<Codec> codecs;
  Clock::duration worker_grace = std::chrono::seconds(1);    ///< for a worker to come back before it is left out
  Clock::duration worker_silence = std::chrono::seconds(6);  ///< after which one is taken for dead
  Clock::duration silence = std::chrono::seconds(2);         ///< after which a server is taken for dead
};

struct ServerStats {
  ShardStats shards;  ///< of all that it is primary of
  uint64_t bytes_in = 0, bytes_out = 0;
  uint64_t busy_ns = 0;        ///< not asleep
  uint64_t num_takeovers = 0;  ///< of a shard whose primary died
  uint64_t num_workers_lost = 0;
  uint64_t num_primary = 0;     ///< shards that it is primary of now
  uint64_t num_replicated = 0;  ///< of these, with a replica that has everything
  uint64_t most_waiting = 0;    ///< queries that waited at once
};

class Server {
 public:
  /// Listens, but serves nobody before start(). Throws UsageError and SystemError.
  explicit Server(ServerOptions options);
  ~Server();
  Server(const Server&) = delete;

  SocketAddress address() const;
  /// `addresses` of all servers, by index.
  void start(std::vector<SocketAddress> addresses);
  /// Ends without a word, as if killed; workers see a closed connection. Idempotent.
  void stop();
  /// True once all workers have left, one of them with a goodbye (after the death of all, others may come), and after
  /// stop(); false at the deadline.
  bool wait_until_done(Deadline deadline);
  ServerStats stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Servers as threads of this process, started and connected to each other.
std::vector<std::unique_ptr<Server>> start_local_servers(int num_servers, const ServerOptions& options);
std::vector<SocketAddress> addresses_of(const std::vector<std::unique_ptr<Server>>& servers);

}  // namespace trireme::server
