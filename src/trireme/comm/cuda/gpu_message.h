// A message between two GPUs, by way of the host: right between any two ranks, whatever they share.
//
// The sender's data goes to page-locked memory, then as an ordinary message, then to the receiver's GPU. So messages of
// GPU operands match by tag and count, pass each other and report mismatches as those of host operands do.
#pragma once

#include <mutex>

#include "trireme/comm/communicator_impl.h"
#include "trireme/comm/cuda/cuda_objects.h"

namespace trireme {

class GpuMessageTask : public GpuTask {
 public:
  /// `copies` is the stream for the copies. `host` holds the whole message. A message goes after `before`, an earlier
  /// one to the same member, if there is one.
  GpuMessageTask(Communicator::Impl& impl, int device, const GpuMessage& message, cudaStream_t caller,
                 cudaStream_t copies, EventPool& events, std::shared_ptr<std::byte> host,
                 std::shared_ptr<GpuMessageTask> before);

  bool is_done() override;
  bool is_enqueued() const override { return copying_.load(std::memory_order_acquire); }
  bool inputs_are_ready() override;
  void wait_on(void* stream) override;

 private:
  bool advance();
  bool has_gone();
  bool copy_has_ended();
  void start_copy();

  Communicator::Impl* impl_;
  const int device_;
  const GpuMessage message_;
  const cudaStream_t copies_;
  std::shared_ptr<std::byte> host_;
  EventPool::Event ready_, copied_;
  std::mutex mutex_;  // guards what follows
  std::shared_ptr<GpuMessageTask> before_;
  Endpoint::Ticket ticket_;
  std::exception_ptr failed_;  // whoever asks first may not be the one who deals with it
  std::atomic<bool> copying_{false};
  std::atomic<bool> done_{false};
};

}  // namespace trireme
