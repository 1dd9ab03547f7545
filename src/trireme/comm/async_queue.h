// Runs a communicator's operations in the background, one after another, and moves its messages beside them.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/comm/endpoint.h"

namespace trireme {

struct RankContext;

/// Shared by the handle and whoever completes it.
struct Handle::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::exception_ptr error;
  /// Point to point: done when this is; checked before anything else.
  Endpoint::Ticket ticket;
  std::chrono::milliseconds timeout{0};
  /// For the message when it takes too long.
  struct What {
    std::shared_ptr<const RankContext> context;
    OperationDigest digest;
    int peer = -1;  ///< world rank; -1: all
  } what;

  void finish(std::exception_ptr result);
};

/// One thread for operations and one for messages, so that a message arrives though an operation waits for a peer that
/// waits for the message. Each starts when it is first needed. Thread-safe.
class AsyncQueue {
 public:
  /// `pump` moves the bytes of point-to-point messages for a while and returns whether any are left; what it throws
  /// has been dealt with by the communicator.
  explicit AsyncQueue(std::function<bool()> pump) : pump_(std::move(pump)) {}
  ~AsyncQueue() { stop(); }
  /// Waits for the operation under way, which the owner has cancelled; the others fail.
  void stop();

  Handle add(std::function<void()> operation, std::chrono::milliseconds timeout, Handle::State::What what);
  /// Something is there to pump.
  void nudge();
  /// Nothing is waiting or under way.
  bool idle() const { return pending_.load(std::memory_order_acquire) == 0; }

 private:
  void run_operations();
  void run_pump();

  std::function<bool()> pump_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<std::function<void()>, std::shared_ptr<Handle::State>>> operations_;
  std::atomic<int> pending_{0};
  bool pumping_ = false;
  bool stopping_ = false;
  std::thread operations_thread_, pump_thread_;
};

}  // namespace trireme
