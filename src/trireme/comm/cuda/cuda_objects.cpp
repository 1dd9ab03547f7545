#include "trireme/comm/cuda/cuda_objects.h"

#include <algorithm>
#include <bit>

namespace trireme {

EventPool::~EventPool() {
  for (const cudaEvent_t event : free_) cudaEventDestroy(event);
}

EventPool::Event EventPool::take() {
  {
    std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      const cudaEvent_t event = free_.back();
      free_.pop_back();
      return Event(shared_from_this(), event);
    }
  }
  const DeviceGuard guard(device_);
  cudaEvent_t event = nullptr;
  gpu::check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  return Event(shared_from_this(), event);
}

PinnedPool::~PinnedPool() {
  for (const auto& [size, memory] : free_) cudaFreeHost(memory);
}

std::shared_ptr<std::byte> PinnedPool::take(const std::shared_ptr<PinnedPool>& self, size_t num_bytes) {
  const size_t size = std::bit_ceil(std::max<size_t>(num_bytes, 4096));
  std::byte* memory = nullptr;
  {
    std::lock_guard lock(mutex_);
    const auto found = std::find_if(free_.begin(), free_.end(), [&](const auto& one) { return one.first == size; });
    if (found != free_.end()) {
      memory = found->second;
      free_.erase(found);
    }
  }
  if (memory == nullptr) {
    void* fresh = nullptr;
    gpu::check(cudaMallocHost(&fresh, size), "cudaMallocHost");
    memory = static_cast<std::byte*>(fresh);
  }
  return {memory, [self, size](std::byte* p) {
            std::lock_guard lock(self->mutex_);
            self->free_.emplace_back(size, p);
          }};
}

}  // namespace trireme
