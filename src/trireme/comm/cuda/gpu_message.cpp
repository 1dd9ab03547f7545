#include "trireme/comm/cuda/gpu_message.h"

namespace trireme {

GpuMessageTask::GpuMessageTask(Communicator::Impl& impl, int device, const GpuMessage& message, cudaStream_t caller,
                               cudaStream_t copies, EventPool& events, std::shared_ptr<std::byte> host,
                               std::shared_ptr<GpuMessageTask> before)
    : impl_(&impl),
      device_(device),
      message_(message),
      copies_(copies),
      host_(std::move(host)),
      ready_(events.take()),
      copied_(events.take()),
      before_(std::move(before)) {
  gpu::check(cudaEventRecord(ready_.get(), caller), "cudaEventRecord on the caller's stream");
  if (message_.is_send) {
    start_copy();
  } else {
    const Data in(host_.get(), message_.in.count, message_.in.type);
    ticket_ = impl_->start_message(false, {}, in, message_.peer, message_.tag);
  }
}

void GpuMessageTask::start_copy() {
  gpu::check(cudaStreamWaitEvent(copies_, ready_.get(), 0), "cudaStreamWaitEvent");
  const size_t bytes = message_.is_send ? message_.out.num_bytes() : message_.in.num_bytes();
  if (message_.is_send) {
    gpu::check(cudaMemcpyAsync(host_.get(), message_.out.bytes, bytes, cudaMemcpyDeviceToHost, copies_),
               "cudaMemcpyAsync of a message");
  } else {
    gpu::check(cudaMemcpyAsync(message_.in.bytes, host_.get(), bytes, cudaMemcpyHostToDevice, copies_),
               "cudaMemcpyAsync of a message");
  }
  gpu::check(cudaEventRecord(copied_.get(), copies_), "cudaEventRecord");
  copying_.store(true, std::memory_order_release);
}

bool GpuMessageTask::copy_has_ended() {
  const cudaError_t answer = cudaEventQuery(copied_.get());
  if (answer == cudaErrorNotReady) return false;
  gpu::check(answer, "cudaEventQuery of a message");
  return true;
}

bool GpuMessageTask::is_done() {
  if (done_.load(std::memory_order_acquire)) return true;
  std::lock_guard lock(mutex_);
  if (failed_) std::rethrow_exception(failed_);
  try {
    const DeviceGuard guard(device_);
    return advance();
  } catch (...) {
    failed_ = std::current_exception();
    throw;
  }
}

bool GpuMessageTask::has_gone() {
  is_done();
  std::lock_guard lock(mutex_);
  return ticket_ != nullptr;
}

bool GpuMessageTask::advance() {
  if (message_.is_send && !ticket_) {
    if (before_ && !before_->has_gone()) return false;
    before_.reset();
    if (!copy_has_ended()) return false;
    const ConstData out(host_.get(), message_.out.count, message_.out.type);
    ticket_ = impl_->start_message(true, out, {}, message_.peer, message_.tag);
  }
  if (!ticket_->done.load(std::memory_order_acquire)) impl_->endpoint->progress();
  if (!ticket_->done.load(std::memory_order_acquire)) return false;
  if (!message_.is_send) {
    if (!copying_.load(std::memory_order_acquire)) start_copy();
    if (!copy_has_ended()) return false;
  }
  done_.store(true, std::memory_order_release);
  return true;
}

bool GpuMessageTask::inputs_are_ready() { return cudaEventQuery(ready_.get()) != cudaErrorNotReady; }

void GpuMessageTask::wait_on(void* stream) {
  if (done_.load(std::memory_order_acquire)) return;
  gpu::check(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), copied_.get(), 0), "cudaStreamWaitEvent");
}

}  // namespace trireme
