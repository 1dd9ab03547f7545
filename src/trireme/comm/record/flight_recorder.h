// The last operations of a communicator, always kept: what a rank was doing when something went wrong.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/deadline.h"
#include "trireme/comm/record/operation.h"

namespace trireme {

struct FlightRecord {
  OperationDigest digest;
  int64_t started_ns = 0;  ///< of the steady clock
  int64_t ended_ns = 0;    ///< 0 while under way
  bool failed = false;
};

/// A fixed number of records, the oldest overwritten. Written by the thread that runs the operations; read by others
/// for diagnosis, so a record under way may be seen half-written.
class FlightRecorder {
 public:
  static constexpr size_t kCapacity = 1024;

  FlightRecorder();

  void begin(const OperationDigest& digest, Clock::time_point now) {
    Slot& slot = slots_[next_.load(std::memory_order_relaxed) % kCapacity];
    slot.ended_ns.store(0, std::memory_order_relaxed);
    slot.words[0].store(pack(digest), std::memory_order_relaxed);
    slot.words[1].store(digest.count, std::memory_order_relaxed);
    slot.words[2].store(digest.sequence, std::memory_order_relaxed);
    slot.started_ns.store(now.time_since_epoch().count(), std::memory_order_relaxed);
    next_.fetch_add(1, std::memory_order_release);
  }
  void end(Clock::time_point now, bool failed = false) {
    Slot& slot = slots_[(next_.load(std::memory_order_relaxed) - 1) % kCapacity];
    slot.ended_ns.store(failed ? -now.time_since_epoch().count() : now.time_since_epoch().count(),
                        std::memory_order_relaxed);
  }

  /// Oldest first.
  std::vector<FlightRecord> records() const;
  /// A JSON array of objects, oldest first.
  std::string to_json() const;

 private:
  struct Slot {
    std::atomic<uint64_t> words[3];
    std::atomic<int64_t> started_ns, ended_ns;
  };
  static uint64_t pack(const OperationDigest& digest) {
    return static_cast<uint64_t>(digest.kind) | static_cast<uint64_t>(digest.type) << 8 |
           static_cast<uint64_t>(digest.op) << 16 | static_cast<uint64_t>(digest.algorithm) << 24 |
           static_cast<uint64_t>(static_cast<uint32_t>(digest.root)) << 32;
  }

  std::unique_ptr<Slot[]> slots_;
  std::atomic<uint64_t> next_{0};
};

}  // namespace trireme
