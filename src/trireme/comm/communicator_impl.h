// The inside of a communicator: one group's board, endpoint, queue and records.
#pragma once

#include <optional>

#include "trireme/comm/algorithms/algorithms.h"
#include "trireme/comm/async_queue.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/host/board_collectives.h"
#include "trireme/comm/rank_context.h"

namespace trireme {

struct Communicator::Impl {
  struct Group {
    uint64_t id;
    std::string name;
    std::vector<int> world_ranks;
    int rank;
    std::byte* seats = nullptr;       ///< of the board, when all members are on one host
    bool has_neighbours = false;      ///< another member is on this host
    std::vector<uint64_t> mailboxes;  ///< places, by member; empty for the world, whose mailboxes are at fixed places
    std::vector<void*> owned_memory;  ///< released when all same-host members have left
  };

  Impl(std::shared_ptr<RankContext> context, Group group);
  ~Impl();

  int size() const { return static_cast<int>(group.world_ranks.size()); }
  std::chrono::milliseconds timeout_of(const CallOptions& options) const {
    return options.timeout.count() > 0 ? options.timeout : context->call_timeout;
  }
  Waiter waiter_until(Clock::time_point deadline, bool background, const Lookout* lookout = nullptr) const;
  std::unique_ptr<Link> make_link(int peer);
  /// The mailbox of a member on this host, null for others.
  Mailbox* mailbox_of(int member);

  /// One collective, here and now. `body(BoardCollectives::Call)` does the work.
  template <typename Body>
  void execute(OperationDigest digest, uint64_t extra, const CallOptions& options, bool background, Body&& body) {
    const Clock::time_point start = Clock::now();
    digest.sequence = ++sequence;
    if (is_unusable()) [[unlikely]]
      refuse(digest, start);
    begin(digest, start);
    const uint64_t print = fingerprint(digest, group.id, extra ^ outer_fingerprint);
    if (board) board->announce(digest, print);
    const Waiter waiter = waiter_until(start + timeout_of(options), background, board.get());
    try {
      body(BoardCollectives::Call{print, digest, waiter});
    } catch (...) {
      recorder.end(Clock::now(), true);
      fail(digest, start);
    }
    end();
  }
  /// Blocking: now, or behind what the queue holds.
  template <typename Body>
  void run(const OperationDigest& digest, uint64_t extra, const CallOptions& options, Body&& body) {
    if (queue.idle()) [[likely]] {
      execute(digest, extra, options, false, body);
    } else {
      start(digest, extra, options, body).wait();
    }
  }
  template <typename Body>
  Handle start(const OperationDigest& digest, uint64_t extra, const CallOptions& options, Body body) {
    if (is_unusable()) [[unlikely]]
      refuse(digest, Clock::now());
    return queue.add([this, digest, extra, options, body] { execute(digest, extra, options, true, body); },
                     timeout_of(options), {context, digest});
  }
  Messenger messenger(const BoardCollectives::Call& call);

  bool is_unusable() const {
    return is_broken.load(std::memory_order_acquire) || context->control->failure() != nullptr;
  }
  /// Throws the error that broke the group or the job, if there is one.
  void check_usable();
  /// The same for an operation, which the recorder then shows as failed.
  void refuse(const OperationDigest& digest, Clock::time_point start);
  void begin(const OperationDigest& digest, Clock::time_point start);
  void end();
  /// Called in a catch block: turns what was caught into a CommError, tells everybody, and throws it.
  [[noreturn]] void fail(const OperationDigest& digest, Clock::time_point start);
  [[noreturn]] void break_with(const std::string& message, int culprit_world_rank, bool report);
  /// This rank, and the caller's step where it has told one.
  Where where() const;
  [[noreturn]] void break_with_lost(int peer_world_rank, const std::string& reason, const OperationDigest& digest);
  /// Messages between two ranks are too many and too cheap to be recorded, but for the one that fails.
  void record_failed_message(const OperationDigest& digest, Clock::time_point start);
  std::string describe_mismatch(const OperationDigest& mine, const OperationMismatch& mismatch, int& culprit) const;
  std::string describe_timeout(const OperationDigest& digest, Clock::time_point start, int& culprit);
  void dump_recorder(const CommError& error) const noexcept;

  // Point to point.
  Endpoint::Ticket start_message(bool is_send, ConstData out, Data in, int peer, uint32_t tag);
  void wait_for(std::span<const Endpoint::Ticket> tickets, const OperationDigest& digest, const CallOptions& options);
  Handle hand_over(Endpoint::Ticket ticket, const CallOptions& options);
  bool pump();

  // On GPU memory: [Note: GPU operations]. Throw UsageError where no GPU is attached.
  GpuOperations& gpu_operations() const;
  void run_on_gpu(OperationDigest digest, uint64_t extra, const GpuRequest& request, const CallOptions& options);
  Handle start_on_gpu(OperationDigest digest, uint64_t extra, GpuRequest request, const CallOptions& options);
  std::shared_ptr<GpuTask> start_gpu_message(const GpuMessage& message, const CallOptions& options);
  void await_tasks(std::span<const std::shared_ptr<GpuTask>> tasks);
  /// Whether the task has ended; what it throws has broken the group. In the background nobody else records a failure.
  bool watch(GpuTask& task, bool background = false);
  /// Throws what a waiter throws, with a better word for work of this rank's own that does not end.
  void check_task(GpuTask& task);

  Tuner::Situation situation(bool ordered) const;
  Algorithm algorithm_for(size_t num_bytes, const CallOptions& options) const;
  /// Sub-groups for the two-level algorithm; made on first use, by all members together.
  void prepare_two_level(Communicator& self, const CallOptions& options);

  std::shared_ptr<RankContext> context;
  Group group;
  std::vector<void*> retired_memory;  // rings of links that are gone
  std::unique_ptr<Board> board;
  std::optional<BoardCollectives> host_shared;
  std::unique_ptr<Endpoint> endpoint;
  Arena arena;
  FlightRecorder recorder;
  uint64_t sequence = 0;
  uint64_t outer_fingerprint = 0;  ///< of the operation that this group's operations are parts of
  uint64_t splits = 0;
  std::unique_ptr<Communicator> inside_host, between_hosts;
  std::unique_ptr<GpuOperations> gpu;  ///< null until a GPU is attached
  bool hosts_are_equal = true;

  mutable std::mutex broken_mutex;
  std::atomic<bool> is_broken{false};
  std::optional<CommError> broken;
  std::atomic<bool> closing{false};
  Clock::time_point closing_since{};  ///< written before `closing`

  std::mutex messages_mutex;
  std::vector<std::pair<Endpoint::Ticket, std::shared_ptr<Handle::State>>> messages;  // started, not done
  AsyncQueue queue;  // last: its thread uses all of the above
};

/// [Note: Two levels] in algorithms/two_level.cpp.
void all_reduce_two_level(Communicator::Impl& group, uint64_t fingerprint, Data data, ReduceOp op,
                          const CallOptions& options);

}  // namespace trireme
