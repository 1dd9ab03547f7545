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
#include "trireme/comm/gpu_operations.h"
#include "trireme/comm/transport/endpoint.h"

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
  /// On GPU memory: what the GPU does, and whether it has been told.
  std::shared_ptr<GpuTask> task;
  bool enqueued = false;
  std::chrono::milliseconds timeout{0};
  /// For the message when it takes too long.
  struct What {
    std::shared_ptr<const RankContext> context;
    OperationDigest digest;
    int peer = -1;  ///< world rank; -1: all
  } what;

  void finish(std::exception_ptr result);
  void set_enqueued();
};

/// One thread for operations and one for messages, so that a message arrives though an operation waits for a peer that
/// waits for the message, and one that watches what GPUs do. Each starts when it is first needed. Thread-safe.
class AsyncQueue {
 public:
  /// `pump` moves the bytes of point-to-point messages for a while and returns whether any are left; what it throws
  /// has been dealt with by the communicator. `watch` says whether a GPU task is done; what it throws ends the task.
  AsyncQueue(std::function<bool()> pump, std::function<bool(GpuTask&)> watch)
      : pump_(std::move(pump)), watch_(std::move(watch)) {}
  ~AsyncQueue() { stop(); }
  /// Waits for the operation under way, which the owner has cancelled; the others fail.
  void stop();

  /// With a task, `operation` only gives it to the GPU, and the handle is done when the task is.
  Handle add(std::function<void()> operation, std::chrono::milliseconds timeout, Handle::State::What what,
             std::shared_ptr<GpuTask> task = nullptr);
  /// A task that needs no operation.
  Handle add(std::shared_ptr<GpuTask> task, std::chrono::milliseconds timeout, Handle::State::What what);
  /// Something is there to pump.
  void nudge();
  /// Nothing is waiting or under way.
  bool idle() const { return pending_.load(std::memory_order_acquire) == 0; }

 private:
  void run_operations();
  void run_pump();
  void run_watch();
  void watch(std::shared_ptr<Handle::State> state);

  std::function<bool()> pump_;
  std::function<bool(GpuTask&)> watch_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<std::function<void()>, std::shared_ptr<Handle::State>>> operations_;
  std::atomic<int> pending_{0};
  std::vector<std::shared_ptr<Handle::State>> watched_;  // new ones; the thread keeps the others
  bool pumping_ = false;
  bool stopping_ = false;
  std::thread operations_thread_, pump_thread_, watch_thread_;
};

}  // namespace trireme
