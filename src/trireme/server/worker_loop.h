// The thread of a worker that talks to the servers. For worker*.cpp only.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "trireme/server/channel.h"
#include "trireme/server/dialer.h"
#include "trireme/server/worker.h"

namespace trireme::server {

struct Pending::State {
  std::string what;  ///< "pull of \"weight\" for clock 5"
  Clock::duration timeout{};
  std::shared_ptr<std::atomic<uint64_t>> blocked_ns;
  std::mutex mutex;
  std::condition_variable ended;
  size_t left = 0, dropped = 0;
  std::string error, note;
};

/// A message to one shard, and what its answer is for.
struct Request {
  uint64_t id = 0;
  int shard = 0;
  uint32_t priority = 0;
  bool is_event = false;
  Event event;
  Query query;
  std::vector<Block> data;
  std::function<void(std::span<const std::byte>)> deliver;  ///< of a query; throws Error for a wrong length
  size_t num_bytes = 0;
  Clock::time_point sent_at{};
  std::shared_ptr<Pending::State> state;
};

class WorkerLoop {
 public:
  WorkerLoop(const WorkerOptions& options, const KeyTable& table, LeafRange leaves);
  ~WorkerLoop();

  /// Until all shards are joined; throws Error at the deadline or the first failure.
  void wait_until_joined(Deadline deadline);
  uint64_t clock() const { return first_clock_; }
  void submit(std::vector<Request> requests);
  /// Nothing is under way any more; false at the deadline.
  bool wait_until_idle(Deadline deadline);
  /// Says goodbye and ends the thread.
  void leave(Deadline deadline);
  WorkerStats stats() const;
  /// Of all waits; outlives this, as a Pending may.
  const std::shared_ptr<std::atomic<uint64_t>>& blocked_ns() const { return blocked_ns_; }

 private:
  /// What is between this worker and one shard, wherever that is served.
  struct Link {
    int shard = 0;
    std::unique_ptr<Channel> channel;
    HostSharedArea area, offered;
    bool dialing = false;
    size_t attempts = 0;
    Clock::time_point next_dial{}, lost_at = Clock::now();
    bool has_joined = false;
    Joined joined;
    std::string failure;
    uint64_t next_sequence = 1;
    std::map<std::pair<uint32_t, uint64_t>, Request> events, queries;  ///< to be sent
    std::map<uint64_t, Request> unacked;                               ///< by sequence
    std::map<uint64_t, uint64_t> sequence_of;                          ///< by id
    std::map<uint64_t, Request> asked;                                 ///< by id
    size_t unacked_bytes = 0;
  };

  void run();
  void take_inbox();
  void dial(Link& link);
  void handle_call(CallResult result);
  void connected(Link& link, CallResult result);
  void lost(Link& link, const std::string& why);
  void fail(Link& link, const std::string& text);
  void pump(Link& link);
  void send_event(Link& link, Request& request);
  void send_query(Link& link, const Request& request);
  void handle(Link& link);
  void handle_frame(Link& link, WireFrame& frame);
  void finish_event(Link& link, std::map<uint64_t, Request>::iterator at, const Answer& answer,
                    const std::string& error);
  void finish(Request& request, const std::string& error, bool dropped = false);
  void tick();
  int candidate(const Link& link) const;
  std::string name_of_server(int server) const;

  const WorkerOptions options_;
  const LeafRange leaves_;
  std::vector<uint32_t> uses_;
  uint64_t incarnation_ = 0;
  uint32_t slot_bytes_ = 0;
  control::Poller poller_;
  Dialer dialer_;
  std::vector<Link> links_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Request> inbox_;
  uint64_t num_requests_ = 0, num_under_way_ = 0;
  size_t num_joined_ = 0;
  std::string first_failure_, last_problem_;
  uint64_t first_clock_ = 0;
  WorkerStats stats_;
  bool saying_goodbye_ = false;
  Clock::time_point goodbye_by_{};
  std::atomic<bool> stopping_{false};
  const std::shared_ptr<std::atomic<uint64_t>> blocked_ns_ = std::make_shared<std::atomic<uint64_t>>(0);
  Clock::time_point next_tick_{};
  std::thread thread_;
};

}  // namespace trireme::server
