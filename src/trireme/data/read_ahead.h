// A thread that reads batches before they are asked for, so that training does not wait for the disk.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "trireme/base/deadline.h"
#include "trireme/data/sample_stream.h"

namespace trireme {

struct BatchRange {
  int64_t position = 0, count = 0;
  bool operator==(const BatchRange&) const = default;
};

struct ReadAheadOptions {
  int depth = 2;                                   ///< batches that wait in memory, at least 1
  Clock::duration stop = std::chrono::seconds(1);  ///< how long the destructor waits for a read under way
};

/// Owns the thread. next() is called by one thread at a time; waited() by any.
/// The destructor waits at most options.stop: a thread that hangs in a read is left to itself with its own copy of the
/// stream, and touches nothing else.
class ReadAhead {
 public:
  /// Says what comes next; nothing at the end. Called by the reading thread, one call at a time, never after the
  /// destructor has begun to wait; must not block. What it throws comes out of next().
  using Plan = std::function<std::optional<BatchRange>()>;

  ReadAhead(SampleStream stream, Plan plan, ReadAheadOptions options = {});
  ReadAhead(SampleStream stream, std::vector<BatchRange> ranges, ReadAheadOptions options = {});
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  /// The next batch of the plan. Throws what the reading thread threw (again at each call), Error naming the positions
  /// when `deadline` passes (a later call may still succeed), and UsageError after the end of the plan.
  Batch next(Deadline deadline);
  /// As next(), but nothing after the end of the plan.
  std::optional<Batch> next_if_any(Deadline deadline);
  /// All the time that next() spent waiting.
  std::chrono::nanoseconds waited() const;

 private:
  struct State;
  static void work(const std::shared_ptr<State>& state);
  std::shared_ptr<State> state_;
  Clock::duration stop_;
};

}  // namespace trireme
