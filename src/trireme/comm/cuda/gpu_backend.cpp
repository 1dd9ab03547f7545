#include "trireme/comm/cuda/gpu_backend.h"

#include <algorithm>

#include "trireme/comm/cuda/gpu_message.h"
#include "trireme/comm/cuda/ordered_sum.h"

namespace trireme {

void CudaTask::record_ready(EventPool::Event event) {
  gpu::check(cudaEventRecord(event.get(), stream_), "cudaEventRecord on the caller's stream");
  own_ready_ = std::move(event);
  share_ready(own_ready_.get());
}

void CudaTask::set_enqueued(cudaEvent_t event, EventPool::Event own) {
  own_end_ = std::move(own);
  end_.store(event, std::memory_order_release);
}

bool CudaTask::is_done() {
  if (done_.load(std::memory_order_acquire)) return true;
  const cudaEvent_t end = end_.load(std::memory_order_acquire);
  if (end == nullptr) return false;
  const DeviceGuard guard(backend_->device());
  const cudaError_t answer = cudaEventQuery(end);
  if (answer == cudaErrorNotReady) {
    backend_->check_health();
    return false;
  }
  gpu::check(answer, "cudaEventQuery of an operation");
  if (!backend_->is_healthy()) return false;  // ended by the abort; whoever watches says why
  done_.store(true, std::memory_order_release);
  return true;
}

bool CudaTask::inputs_are_ready() {
  const cudaEvent_t event = ready();
  return event == nullptr || cudaEventQuery(event) != cudaErrorNotReady;
}

void CudaTask::wait_on(void* stream) {
  if (done_.load(std::memory_order_acquire)) return;
  gpu::check(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), end_.load(std::memory_order_acquire), 0),
             "cudaStreamWaitEvent for an operation");
}

GpuBackend::GpuBackend(Communicator::Impl& impl, int device)
    : impl_(&impl),
      device_(device),
      events_(std::make_shared<EventPool>(device)),
      pinned_(std::make_shared<PinnedPool>()) {
  const DeviceGuard guard(device_);
  int lowest = 0, highest = 0;
  gpu::check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
  for (cudaStream_t* stream : {&stream_, &message_stream_})
    gpu::check(cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, highest), "cudaStreamCreateWithPriority");
  gpu::load_combine_kernels();
}

GpuBackend::~GpuBackend() {
  if (!is_healthy()) {
    new std::shared_ptr<PinnedPool>(pinned_);  // kept for ever: see is_healthy()
    return;
  }
  cudaStreamDestroy(stream_);
  cudaStreamDestroy(message_stream_);
}

std::shared_ptr<GpuTask> GpuBackend::begin(void* stream, bool) {
  const DeviceGuard guard(device_);
  auto task = std::make_shared<CudaTask>(*this, stream);
  task->record_ready(events_->take());
  return task;
}

std::shared_ptr<GpuTask> GpuBackend::start_message(const GpuMessage& message, void* stream) {
  const DeviceGuard guard(device_);
  const size_t bytes = message.is_send ? message.out.num_bytes() : message.in.num_bytes();
  last_sent_.resize(static_cast<size_t>(size()));
  std::weak_ptr<GpuMessageTask>& last = last_sent_[static_cast<size_t>(message.peer)];
  auto task = std::make_shared<GpuMessageTask>(*impl_, device_, message, static_cast<cudaStream_t>(stream),
                                               message_stream_, *events_, pinned_->take(pinned_, bytes),
                                               message.is_send ? last.lock() : nullptr);
  if (message.is_send) last = task;
  return task;
}

Buffer GpuBackend::allocate(size_t num_bytes) {
  const DeviceGuard guard(device_);
  void* memory = nullptr;
  const size_t taken = whole_blocks(num_bytes);
  // Plain cudaMalloc: memory from pools and virtual ranges cannot be opened by other processes.
  gpu::check(cudaMalloc(&memory, taken), "cudaMalloc");
  std::shared_ptr<void> owner(memory, [healthy = healthy_](void* p) {
    if (healthy->load(std::memory_order_acquire)) cudaFree(p);
  });
  gpu::check(cudaMemsetAsync(memory, 0, taken, cudaStreamPerThread), "cudaMemsetAsync");
  gpu::check(cudaStreamSynchronize(cudaStreamPerThread), "cudaStreamSynchronize");
  return Buffer(std::move(owner), num_bytes);
}

Traffic GpuBackend::traffic() const {
  Traffic traffic;
  traffic.messages_sent = traffic.messages_received = traffic.rounds = operations_.load(std::memory_order_relaxed);
  traffic.bytes_sent = bytes_sent_.load(std::memory_order_relaxed);
  traffic.bytes_received = bytes_received_.load(std::memory_order_relaxed);
  return traffic;
}

void GpuBackend::meet(const BoardCollectives::Call& call) {
  if (size() == 1) return;
  if (impl_->host_shared) return impl_->host_shared->barrier(call);
  Messenger messenger = impl_->messenger(call);
  barrier_by_messages(messenger);
}

void GpuBackend::exchange(const BoardCollectives::Call& call, const void* mine, void* all, size_t num_bytes) {
  const ConstData in(mine, num_bytes, DataType::kUInt8);
  const Data out(all, num_bytes * static_cast<size_t>(size()), DataType::kUInt8);
  if (size() == 1) {
    std::copy_n(in.bytes, num_bytes, out.bytes);
  } else if (impl_->host_shared) {
    impl_->host_shared->all_gather(call, in, out);
  } else {
    Messenger messenger = impl_->messenger(call);
    all_gather_by_messages(messenger, in, out, std::vector<size_t>(static_cast<size_t>(size()), num_bytes));
  }
}

std::vector<size_t> GpuBackend::exchange_counts(const BoardCollectives::Call& call, const GpuRequest& request) {
  const size_t p = static_cast<size_t>(size()), me = static_cast<size_t>(rank());
  std::vector<size_t> all(p * p);
  exchange(call, request.send_counts.data(), all.data(), p * sizeof(size_t));
  for (size_t peer = 0; peer < p; ++peer) {
    if (all[peer * p + me] != request.recv_counts[peer]) throw OperationMismatch{static_cast<int>(peer), call.digest};
  }
  return all;
}

// What a member's data costs its neighbours, whatever way the backend takes: an all-reduce by parts sends and receives
// 2(p−1)/p of it, everything else what the others have of this member and this member of them.
void GpuBackend::count_traffic(const GpuRequest& request) {
  const size_t p = static_cast<size_t>(size());
  if (p == 1) return;
  const bool is_root = rank() == request.root;
  const size_t in = request.in.num_bytes(), out = request.out.num_bytes();
  size_t sent = 0, received = 0;
  switch (request.kind) {
    case OperationKind::kAllReduce:
      sent = received = in / p * (p - 1) * 2;
      break;
    case OperationKind::kBroadcast:
      (is_root ? sent : received) = out;
      break;
    case OperationKind::kScatter:
      (is_root ? sent : received) = is_root ? out * (p - 1) : out;
      break;
    case OperationKind::kGather:
    case OperationKind::kReduce:
      (is_root ? received : sent) = is_root ? in * (p - 1) : in;
      break;
    case OperationKind::kReduceScatter:
      sent = received = out * (p - 1);
      break;
    case OperationKind::kReduceScatterV:
      sent = in - out;
      received = out * (p - 1);
      break;
    case OperationKind::kAllGather:
    case OperationKind::kAllGatherV:
      sent = in * (p - 1);
      received = out - in;
      break;
    default:
      sent = in - in / p;
      received = out - out / p;
      break;
  }
  operations_.fetch_add(1, std::memory_order_relaxed);
  bytes_sent_.fetch_add(sent, std::memory_order_relaxed);
  bytes_received_.fetch_add(received, std::memory_order_relaxed);
}

}  // namespace trireme
