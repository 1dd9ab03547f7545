// Measures the memory of tensors, as libtorch reports it: what a pass keeps, and its peak.
#pragma once

#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdint>
#include <memory>

namespace trireme {

/// While it lives, counts the bytes of tensors that this thread, and a backward pass that it starts, allocate and free.
/// Threads: one. Only one at a time, and not together with libtorch's profiler, whose slot it uses.
class HeldMemory {
 public:
  HeldMemory();
  HeldMemory(const HeldMemory&) = delete;

  int64_t now_bytes() const;   ///< since construction; negative if more older tensors were freed
  int64_t most_bytes() const;  ///< peak

 private:
  class Counter;
  std::shared_ptr<Counter> counter_;
  c10::DebugInfoGuard guard_;
};

}  // namespace trireme
