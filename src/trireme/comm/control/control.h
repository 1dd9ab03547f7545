// The control plane of a job: how ranks find and trust each other, who is alive, and how a failure reaches everybody.
//
// Rank 0 (or its launcher) listens; every rank keeps one connection to it for the life of the job. Over it travel the
// table of members at the start, then heartbeats, failures and status questions. Data connections between two ranks
// are opened through here too, so that nothing unauthenticated ever reaches a transport.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/deadline.h"
#include "trireme/comm/control/launch_environment.h"
#include "trireme/comm/transport/socket.h"

namespace trireme {

/// What every rank knows of every other one.
struct Member {
  int rank = 0;
  std::string host_name;  ///< for messages
  std::string host_id;    ///< equal for two ranks exactly when they can share memory
  int pid = 0;
  std::string address;  ///< where its data connections are accepted; filled in by join()
  uint16_t port = 0;
  std::string blob;  ///< opaque to the control plane: what the transports want to tell each other
};

/// The largest thing that broke, in words that name rank, host, peer, operation and sequence number.
struct Failure {
  int culprit = -1;  ///< the rank at fault; -1 when unknown
  std::string message;
};

/// What a rank is doing; carried by its heartbeats. Written by the communicator at every operation, so it is cheap.
struct RankProgress {
  std::atomic<uint64_t> group{0};
  std::atomic<uint64_t> sequence{0};
  std::atomic<uint32_t> operation{0};  ///< an OperationKind; 0 when idle
  std::atomic<uint64_t> step{0};       ///< the caller's own counter: World::set_step
};

/// The last that the coordinator heard of a rank.
struct RankStatus {
  int rank = 0;
  double seconds_since_heartbeat = 0;
  uint64_t group = 0, sequence = 0, step = 0;
  uint32_t operation = 0;
};

struct ControlOptions {
  Clock::duration join_timeout = std::chrono::seconds(60);
  Clock::duration heartbeat_interval = std::chrono::milliseconds(500);
  Clock::duration silence_limit = std::chrono::seconds(5);  ///< a rank silent for this long has failed
};

/// Thread-safe. One background thread a process, which never ends the process: what it learns is read by failure().
class ControlPlane {
 public:
  /// Blocks until all ranks have joined, at most `join_timeout`. Throws with cause and cure: port in use, rank outside
  /// the world, two processes with one rank, wrong token, another version, another job, who is missing at the deadline.
  static std::unique_ptr<ControlPlane> join(const LaunchEnvironment& environment, Member self,
                                            const ControlOptions& options = {});
  virtual ~ControlPlane() = default;

  virtual const std::vector<Member>& members() const = 0;
  virtual RankProgress& progress() = 0;

  /// The first failure that anybody reported, or null. A single atomic load; the pointer stays valid.
  virtual const Failure* failure() const noexcept = 0;
  /// Tells everybody. The first report in the job wins; later ones are dropped. Never blocks for long, never throws.
  virtual void report(const Failure& failure) noexcept = 0;

  /// Asks the coordinator what it last heard of every rank.
  virtual std::vector<RankStatus> survey(Deadline deadline) = 0;

  /// Opens an authenticated connection to `peer`, which takes it with accept(own rank, channel). Non-blocking socket.
  virtual Socket connect(int peer, uint64_t channel, Deadline deadline) = 0;
  /// The connection that `peer` opened on `channel`, once it is there. Never blocks.
  virtual std::optional<Socket> accept(int peer, uint64_t channel) = 0;

  /// Says goodbye: afterwards the end of this process is no failure. Idempotent; called by the destructor.
  virtual void leave() noexcept = 0;
};

}  // namespace trireme
