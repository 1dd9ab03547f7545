// A worker's view of the parameter servers: pull weights, push gradients, wait.
//
// Owner: the caller. Threads: one at a time calls it; messages are sent and received by a thread of its own, while the
// caller computes. Blocking: the constructor, squares(), close() and the waits, each until its deadline. Failure: Error
// that names the operation, the key, the server and who is missing; a server that dies is no failure where its shard
// has a replica: requests under way are repeated there, and count once.
//
//   Worker worker({.worker = rank, .settings = settings, .keys = keys, .servers = addresses, .credentials = …});
//   worker.init("weight", first);                          // the first who says it is believed
//   for (uint64_t clock = worker.clock(); …; ++clock) {
//     worker.pull("weight", weight, {.clock = clock}).wait();
//     …                                                    // forward, backward
//     worker.push("weight", gradient, {.clock = clock, .lr = 0.1});
//     worker.finish_step(clock);
//   }
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/deadline.h"
#include "trireme/comm/control/control_handshake.h"
#include "trireme/server/settings.h"
#include "trireme/server/wire.h"

namespace trireme::server {

struct WorkerOptions {
  int worker = 0;
  Settings settings;
  std::vector<Key> keys;
  std::vector<SocketAddress> servers;  ///< by index
  control::Credentials credentials;
  std::vector<Codec> codecs;
  /// Own leaves of the tree; empty: equal parts, in the order of workers.
  LeafRange leaves;
  std::optional<std::vector<std::string>> uses;          ///< keys that this worker pushes; unset: all
  bool shared_memory = true;                             ///< with servers of this host
  Clock::duration timeout = std::chrono::seconds(60);    ///< of every wait
  Clock::duration reconnect = std::chrono::seconds(20);  ///< for a shard to be served again after its server died
  size_t window_bytes = size_t{8} << 20;  ///< of pushes under way to a server: more wait, so that urgent ones pass them
};

struct WorkerStats {
  uint64_t bytes_sent = 0, bytes_received = 0;  ///< shared memory counts as well
  uint64_t num_pushes = 0, num_dropped = 0, num_pulls = 0;
  uint64_t push_ns = 0;     ///< from sending a piece to its acknowledgement, summed
  uint64_t service_ns = 0;  ///< of these, spent by servers on the piece itself; the rest is queueing and transfer
  uint64_t blocked_ns = 0;  ///< spent in waits
  uint64_t num_reconnects = 0;
};

/// Something under way. Letting go of it does not cancel it.
class Pending {
 public:
  Pending() = default;
  bool valid() const { return state_ != nullptr; }
  /// True once it has ended, well or not.
  bool test() const;
  /// Throws what went wrong, or Error at the timeout (0: the worker's own); then it is still under way.
  void wait(Clock::duration timeout = Clock::duration::zero());
  /// After wait(): pieces of a push that came too late to count.
  size_t num_dropped() const;

  struct State;
  explicit Pending(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

struct PushOptions {
  uint64_t clock = 0;     ///< the step that the gradient belongs to
  double lr = 0;          ///< of the update that it is part of
  double factor = 1;      ///< applied to the sum: 1 / the number of micro-batches averages
  uint32_t priority = 0;  ///< smaller first: give the layers that are needed first the smallest
};

struct PullOptions {
  uint64_t clock = 0;  ///< the step that needs the weights: they have all updates of the steps before
  uint32_t priority = 0;
  Part part = Part::kWeights;
};

/// The sum over a branch of the tree.
struct PartialGradient {
  LeafRange leaves;
  std::span<const float> values;
};

class Worker {
 public:
  /// Connects to all servers. Throws UsageError for options that cannot be, Error where a server is not there in time.
  explicit Worker(WorkerOptions options);
  ~Worker();
  Worker(const Worker&) = delete;

  const KeyTable& table() const;
  /// Where to begin: 0, or the clock that the others have reached, for a worker that replaces another.
  uint64_t clock() const;

  // Memory that is passed must stay as it is until the operation has ended. Lengths must be those of the keys.

  /// First values. `clock` > 0 goes on from a checkpoint, whose values have had `num_updates`: fewer than that where
  /// commits skipped some. Optimizer state comes before the weights.
  Pending init(const std::string& name, std::span<const float> values, Part part = Part::kWeights, uint64_t clock = 0,
               std::optional<uint64_t> num_updates = {});
  Pending push(const std::string& name, std::span<const float> gradient, const PushOptions& options = {});
  /// For workers whose leaves are no branch of the tree: schedule_leaves() says which partial sums they have.
  Pending push_partials(const std::string& name, std::span<const PartialGradient> partials,
                        const PushOptions& options = {});
  /// Rows of a key with a row width. Rows that nobody names keep their weights and their optimizer state.
  Pending push_rows(const std::string& name, std::span<const int64_t> rows, std::span<const float> values,
                    const PushOptions& options = {});
  /// The same rows of several partial sums.
  Pending push_rows(const std::string& name, std::span<const int64_t> rows, std::span<const PartialGradient> partials,
                    const PushOptions& options = {});
  Pending pull(const std::string& name, std::span<float> into, const PullOptions& options = {});
  /// Several at once; the first is the most urgent.
  Pending pull(std::span<const std::string> names, std::span<const std::span<float>> into,
               const PullOptions& options = {});
  Pending pull_rows(const std::string& name, std::span<const int64_t> rows, std::span<float> into,
                    const PullOptions& options = {});
  /// All pushes of a step have been made: what the bounded mode counts. In other modes it does nothing.
  Pending finish_step(uint64_t clock);

  /// With Settings::commits: what is known of the summed gradients of a clock, once all have pushed whom the round
  /// waits for; then one commit, the same on every worker, updates the weights or skips the update. The first counts.
  /// squares() is Σ g² of each key, as sum_of_squares() gives it; it throws Error where a later round is summed
  /// already.
  std::vector<double> squares(uint64_t clock);
  Pending commit(uint64_t clock, double lr, double factor, bool applies = true);

  /// Waits for all that is under way, says goodbye and disconnects. Without it the servers take the worker for dead.
  void close();
  WorkerStats stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::server
