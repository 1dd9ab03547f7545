// What the backends have in common: the stream that operations run on, tasks, messages, allocation and counting.
#pragma once

#include <atomic>
#include <mutex>

#include "trireme/comm/communicator_impl.h"
#include "trireme/comm/cuda/cuda_objects.h"
#include "trireme/comm/gpu_operations.h"

namespace trireme {

class GpuBackend;
class GpuMessageTask;

/// A collective. Its end is an event: one of its own, or one that a backend shares between operations.
class CudaTask : public GpuTask, public std::enable_shared_from_this<CudaTask> {
 public:
  CudaTask(GpuBackend& backend, void* stream) : backend_(&backend), stream_(static_cast<cudaStream_t>(stream)) {}

  bool is_done() override;
  bool is_enqueued() const override { return end_.load(std::memory_order_acquire) != nullptr; }
  bool inputs_are_ready() override;
  void wait_on(void* stream) override;

  cudaStream_t stream() const { return stream_; }
  /// The event after the caller's work: recorded at the beginning, or when a backend asks for it.
  void record_ready(EventPool::Event event);
  void share_ready(cudaEvent_t event) { ready_.store(event, std::memory_order_release); }
  cudaEvent_t ready() const { return ready_.load(std::memory_order_acquire); }
  /// The GPU has the work; `event` comes after it. `own` is given back with the task.
  void set_enqueued(cudaEvent_t event, EventPool::Event own = {});

 private:
  GpuBackend* backend_;
  const cudaStream_t stream_;
  EventPool::Event own_ready_, own_end_;
  std::atomic<cudaEvent_t> ready_{nullptr}, end_{nullptr};
  std::atomic<bool> done_{false};
};

class GpuBackend : public GpuOperations {
 public:
  /// `impl` owns this. Loads kernels and makes the stream: takes a while.
  GpuBackend(Communicator::Impl& impl, int device);
  ~GpuBackend() override;

  std::shared_ptr<GpuTask> begin(void* stream, bool at_once) override;
  std::shared_ptr<GpuTask> start_message(const GpuMessage& message, void* stream) override;
  Buffer allocate(size_t num_bytes) override;
  Traffic traffic() const override;

  /// Throws what the backend knows to have gone wrong.
  virtual void check_health() {}
  int device() const { return device_; }
  /// Until abort(). After it an event says nothing about the data, and nothing is freed: that could wait for kernels
  /// that never end.
  bool is_healthy() const { return healthy_->load(std::memory_order_acquire); }

 protected:
  int size() const { return impl_->size(); }
  int rank() const { return impl_->group.rank; }
  /// Meets the other members on the host, and checks that they mean the same operation.
  void meet(const BoardCollectives::Call& call);
  /// The same, with `mine` of everybody: size() times as many bytes in `all`.
  void exchange(const BoardCollectives::Call& call, const void* mine, void* all, size_t num_bytes);
  /// Everybody's counts to send of an all-to-all-v, by member; throws OperationMismatch where they do not fit.
  std::vector<size_t> exchange_counts(const BoardCollectives::Call& call, const GpuRequest& request);
  void count_traffic(const GpuRequest& request);
  void set_unhealthy() { healthy_->store(false, std::memory_order_release); }

  Communicator::Impl* impl_;
  const int device_;
  cudaStream_t stream_ = nullptr;          // high priority; does not wait for the default stream
  cudaStream_t message_stream_ = nullptr;  // so that messages pass collectives that wait
  std::shared_ptr<EventPool> events_;
  std::shared_ptr<PinnedPool> pinned_;

 private:
  std::vector<std::weak_ptr<GpuMessageTask>> last_sent_;  // by member
  std::shared_ptr<std::atomic<bool>> healthy_ = std::make_shared<std::atomic<bool>>(true);
  std::atomic<uint64_t> operations_{0}, bytes_sent_{0}, bytes_received_{0};
};

}  // namespace trireme
