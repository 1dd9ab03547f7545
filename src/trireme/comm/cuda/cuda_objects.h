// The few CUDA objects that communicators own: the current device for a while, events and pinned memory from a pool.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "trireme/gpu/types.h"

namespace trireme {

/// So many bytes in whole blocks of CUDA's, at least one. Smaller allocations share a block, and a process that has
/// opened a freed one of them can open no other in its place.
constexpr size_t whole_blocks(size_t num_bytes) {
  constexpr size_t kBlock = size_t{2} << 20;
  return (num_bytes / kBlock + (num_bytes % kBlock != 0 || num_bytes == 0 ? 1 : 0)) * kBlock;
}

/// Makes a device current for the calling thread, and the former one again at the end.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    gpu::check(cudaGetDevice(&former_), "cudaGetDevice");
    changed_ = former_ != device;
    // Even where nothing changes: in a thread that is new to CUDA the driver's own functions have no device before it.
    gpu::check(cudaSetDevice(device), "cudaSetDevice");
  }
  ~DeviceGuard() {
    if (changed_) cudaSetDevice(former_);
  }
  DeviceGuard(const DeviceGuard&) = delete;

 private:
  int former_ = 0;
  bool changed_ = false;
};

/// Events without timing, made on first use and used again. Thread-safe. Taken ones keep the pool alive.
class EventPool : public std::enable_shared_from_this<EventPool> {
 public:
  /// Gives its event back at the end. The event's last record may still be under way: the next one replaces it.
  class Event {
   public:
    Event() = default;
    Event(std::shared_ptr<EventPool> pool, cudaEvent_t event) : pool_(std::move(pool)), event_(event) {}
    Event(Event&& other) noexcept : pool_(std::move(other.pool_)), event_(std::exchange(other.event_, nullptr)) {}
    Event& operator=(Event&& other) noexcept {
      std::swap(pool_, other.pool_);
      std::swap(event_, other.event_);
      return *this;
    }
    ~Event() {
      if (pool_ && event_ != nullptr) pool_->give_back(event_);
    }
    cudaEvent_t get() const { return event_; }

   private:
    std::shared_ptr<EventPool> pool_;
    cudaEvent_t event_ = nullptr;
  };

  explicit EventPool(int device) : device_(device) {}
  ~EventPool();
  Event take();

 private:
  void give_back(cudaEvent_t event) {
    std::lock_guard lock(mutex_);
    free_.push_back(event);
  }

  const int device_;
  std::mutex mutex_;
  std::vector<cudaEvent_t> free_;
};

/// Page-locked host memory, kept for the next one that needs as much. Thread-safe.
class PinnedPool {
 public:
  ~PinnedPool();
  std::shared_ptr<std::byte> take(const std::shared_ptr<PinnedPool>& self, size_t num_bytes);

 private:
  std::mutex mutex_;
  std::vector<std::pair<size_t, std::byte*>> free_;
};

}  // namespace trireme
