// GPU memory that several processes on one GPU reach: a member shows an operand, another opens it.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace trireme {

/// What a member tells about an operand. Fixed layout: it travels between processes.
struct ShownMemory {
  cudaIpcMemHandle_t handle{};  ///< of the whole allocation
  uint64_t allocation = 0;      ///< CUDA's number of it, never used again by its process; 0: nothing is shown
  uint64_t base = 0;            ///< where it begins in its process
  uint64_t offset = 0;          ///< of the operand
};

/// One process's view of everybody's memory. Used by one thread at a time, with the device current.
///
/// Opened allocations stay open, since opening takes hundreds of microseconds. Memory that its owner has freed goes
/// back to the GPU when an allocation that took its place is shown, or at the end.
class IpcMemory {
 public:
  explicit IpcMemory(int num_members);
  IpcMemory(const IpcMemory&) = delete;

  /// Nothing for memory that other processes cannot open, such as that of an allocator of virtual ranges.
  std::optional<ShownMemory> show(const void* data, size_t num_bytes);
  std::byte* open(int member, const ShownMemory& shown);
  /// Closes everything. Not in the destructor, since it may wait for the GPU.
  void close() noexcept;

 private:
  struct Opened {
    uint64_t allocation = 0;
    void* memory = nullptr;
  };
  int (*get_range_)(unsigned long long*, size_t*, unsigned long long) = nullptr;
  int (*get_attribute_)(void*, int, unsigned long long) = nullptr;
  std::map<uint64_t, ShownMemory> shown_;           // by base
  std::vector<std::map<uint64_t, Opened>> opened_;  // by member, then base
};

}  // namespace trireme
