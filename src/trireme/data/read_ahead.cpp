#include "trireme/data/read_ahead.h"

#include <fmt/format.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/fault.h"
#include "trireme/base/units.h"

namespace trireme {

/// Shared by consumer and thread, so that either may be the last to leave.
struct ReadAhead::State {
  State(SampleStream stream, Plan plan, int depth)
      : stream(std::move(stream)), plan(std::move(plan)), depth(static_cast<size_t>(depth)) {}

  const SampleStream stream;
  Plan plan;  ///< called and dropped under the mutex: it may refer to things of the consumer
  const size_t depth;

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Batch> ready;
  std::optional<BatchRange> reading;  ///< under way
  Clock::time_point reading_since;
  std::exception_ptr error;
  std::chrono::nanoseconds waited{0};
  bool ended = false;     ///< the plan has no more
  bool stopping = false;  ///< the consumer is leaving
  bool left = false;      ///< the thread is done
};

void ReadAhead::work(const std::shared_ptr<State>& state) {
  State& s = *state;
  std::unique_lock lock(s.mutex);
  try {
    for (;;) {
      s.changed.wait(lock, [&] { return s.stopping || s.ready.size() < s.depth; });
      if (s.stopping) break;
      s.reading = s.plan();
      if (!s.reading) {
        s.ended = true;
        break;
      }
      const BatchRange range = *s.reading;
      s.reading_since = Clock::now();
      lock.unlock();
      fault_point("data.read");
      Batch batch = s.stream.read(range.position, range.count);
      lock.lock();
      s.reading.reset();
      s.ready.push_back(std::move(batch));
      s.changed.notify_all();
    }
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    s.reading.reset();
    s.error = std::current_exception();
  }
  s.left = true;
  s.changed.notify_all();
}

ReadAhead::ReadAhead(SampleStream stream, Plan plan, ReadAheadOptions options) : stop_(options.stop) {
  if (options.depth < 1) throw UsageError(fmt::format("reading ahead by {} batches cannot be", options.depth));
  state_ = std::make_shared<State>(std::move(stream), std::move(plan), options.depth);
  try {
    // Not a jthread: a read that hangs must not hold up the destructor, so nobody joins.
    std::thread([state = state_] { work(state); }).detach();
  } catch (const std::system_error& error) {
    throw SystemError("start the thread that reads data", error.code().value());
  }
}

ReadAhead::ReadAhead(SampleStream stream, std::vector<BatchRange> ranges, ReadAheadOptions options)
    : ReadAhead(
          std::move(stream),
          [ranges = std::move(ranges), next = size_t{0}]() mutable -> std::optional<BatchRange> {
            if (next == ranges.size()) return std::nullopt;
            return ranges[next++];
          },
          options) {}

ReadAhead::~ReadAhead() {
  std::unique_lock lock(state_->mutex);
  state_->stopping = true;
  state_->plan = nullptr;
  state_->changed.notify_all();
  state_->changed.wait_until(lock, Clock::now() + stop_, [&] { return state_->left; });
}

std::optional<Batch> ReadAhead::next_if_any(Deadline deadline) {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  const auto start = Clock::now();
  // Batches that were read before an error still come, in order.
  const bool in_time =
      s.changed.wait_until(lock, deadline.at(), [&] { return !s.ready.empty() || s.error != nullptr || s.ended; });
  s.waited += Clock::now() - start;
  if (!in_time) {
    const std::string which = s.reading
                                  ? fmt::format("{} samples from position {}, under way for {}", s.reading->count,
                                                s.reading->position, format_duration(Clock::now() - s.reading_since))
                                  : "no read is under way";
    throw Error(
        fmt::format("the next batch was not read in time ({})", which),
        "the disk or network behind data.path is slow or stuck; data.cache = \"memory\" reads it once at start");
  }
  if (!s.ready.empty()) {
    Batch batch = std::move(s.ready.front());
    s.ready.pop_front();
    s.changed.notify_all();
    return batch;
  }
  if (s.error != nullptr) std::rethrow_exception(s.error);
  return std::nullopt;
}

Batch ReadAhead::next(Deadline deadline) {
  std::optional<Batch> batch = next_if_any(deadline);
  if (!batch) throw UsageError("no more batches: the plan of what to read ahead has ended");
  return std::move(*batch);
}

std::chrono::nanoseconds ReadAhead::waited() const {
  const std::lock_guard lock(state_->mutex);
  return state_->waited;
}

}  // namespace trireme
