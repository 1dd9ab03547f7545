// Sums groups of gradients over all ranks, compressed, while the backward pass goes on.
//
// Groups are compressed, sent and summed one after another by a thread of the reducer, over a communicator of its own,
// so that other operations of the caller's communicator may run beside them. Every rank starts the same groups in the
// same order. With one rank the method is applied all the same.
//
// Owner: the runtime; must not outlive the world. Threads: one. Blocking: the constructor and finish(), with the
// communicator's timeout; the destructor waits for the group under way. Failure: finish() throws what went wrong first
// (CommError, for instance); every later call throws it again.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "trireme/compress/exchange.h"

namespace trireme {

/// What one rank has sent.
struct WireReport {
  uint64_t elements = 0;     ///< summed so far
  uint64_t dense_bytes = 0;  ///< that sums without compression would have sent
  uint64_t bytes_sent = 0;
};

class CompressedReducer {
 public:
  /// Collective. `groups` in the order of their numbers, whose values lie in the processor's memory; null: the host's.
  /// Throws UsageError for settings that cannot be.
  CompressedReducer(Communicator& comm, const CompressionOptions& options, std::vector<GroupLayout> groups,
                    std::unique_ptr<Processor> processor = nullptr);
  ~CompressedReducer();
  CompressedReducer(const CompressedReducer&) = delete;

  /// Begins the sum of a group, which must stay untouched until finish(). `values` are this rank's gradient, and will
  /// be the sum of all ranks', at least in its shard where the layout has shards. `step` names the random numbers and
  /// the place in the warm-up. `ready`, where set, is called first, on the reducer's thread: it returns when the values
  /// are there, or when the processor knows what to wait for (Processor::after).
  void start(int group, std::span<float> values, uint64_t step, std::function<void()> ready = {});
  /// Returns when all that was started is summed.
  void finish();

  // Between finish() and start():
  /// What a resumed job needs, this rank's part of it: [Note: Residuals].
  StatePieces save() const;
  /// From the pieces of all ranks that saved, in their order; there may have been more or fewer.
  void load(std::span<const StatePieces> by_rank);
  /// Multiplies what is kept of past gradients: when the loss scale has changed by this factor.
  void rescale(float factor);
  WireReport report() const;
  Processor& processor() { return *processor_; }

 private:
  struct Job {
    size_t group;
    std::span<float> values;
    uint64_t step;
    std::function<void()> ready;
  };
  void run();

  std::unique_ptr<Processor> own_processor_;  ///< null: the host's
  Processor* processor_;
  std::unique_ptr<Communicator> comm_;
  std::vector<size_t> counts_;
  std::vector<std::unique_ptr<Exchange>> exchanges_;
  WireReport report_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool busy_ = false, stopping_ = false;
  std::exception_ptr error_;
  std::thread thread_;  ///< last: it uses all the others
};

}  // namespace trireme
