// How much memory tensors take, by libtorch's own reports: what a pass keeps, and what it needs at the most.
#pragma once

#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdint>
#include <memory>

namespace trireme {

/// While it lives, counts the bytes of tensors that this thread, and a backward pass that it starts, takes and gives
/// back. Threads: one. One at a time; not beside libtorch's profiler, whose place it takes.
class HeldMemory {
 public:
  HeldMemory();
  HeldMemory(const HeldMemory&) = delete;

  int64_t now_bytes() const;   ///< since it began; less than 0 where older tensors have gone
  int64_t most_bytes() const;  ///< at once

 private:
  class Counter;
  std::shared_ptr<Counter> counter_;
  c10::DebugInfoGuard guard_;
};

}  // namespace trireme
