#include "trireme/comm/cuda/ipc_messages.h"

namespace trireme {
namespace {

// Beside lane 64 of messages of host memory.
constexpr uint16_t kOfferLane = 65, kDataLane = 66, kThanksLane = 67;

}  // namespace

std::optional<ShownMemory> IpcMessages::show(ConstData data) {
  std::lock_guard lock(mutex_);
  if (data.count == 0) return std::nullopt;
  return memory_.show(data.bytes, data.num_bytes());
}

IpcEvent IpcMessages::take_event() {
  std::lock_guard lock(mutex_);
  if (!free_.empty()) {
    const IpcEvent event = free_.back();
    free_.pop_back();
    return event;
  }
  IpcEvent event;
  gpu::check(cudaEventCreateWithFlags(&event.event, cudaEventDisableTiming | cudaEventInterprocess),
             "cudaEventCreateWithFlags of an event between processes");
  gpu::check(cudaIpcGetEventHandle(&event.handle, event.event), "cudaIpcGetEventHandle");
  event.number = ++events_made_;
  return event;
}

void IpcMessages::give_back(const IpcEvent& event) {
  std::lock_guard lock(mutex_);
  free_.push_back(event);
}

const std::byte* IpcMessages::open(int peer, const ShownMemory& shown) {
  std::lock_guard lock(mutex_);
  return memory_.open(peer, shown);
}

cudaEvent_t IpcMessages::open(int peer, const IpcEvent& event) {
  std::lock_guard lock(mutex_);
  cudaEvent_t& opened = opened_[static_cast<size_t>(peer)][event.number];
  if (opened == nullptr) gpu::check(cudaIpcOpenEventHandle(&opened, event.handle), "cudaIpcOpenEventHandle");
  return opened;
}

void IpcMessages::close() noexcept {
  std::lock_guard lock(mutex_);
  memory_.close();
  for (auto& of_member : opened_) {
    for (const auto& [number, event] : of_member) {
      if (event != nullptr) cudaEventDestroy(event);
    }
    of_member.clear();
  }
}

IpcMessageTask::IpcMessageTask(Communicator::Impl& impl, std::shared_ptr<IpcMessages> messages, int device,
                               const GpuMessage& message, cudaStream_t caller, cudaStream_t copies, EventPool& events,
                               std::shared_ptr<PinnedPool> pinned)
    : impl_(&impl),
      messages_(std::move(messages)),
      device_(device),
      message_(message),
      copies_(copies),
      pinned_(std::move(pinned)),
      copied_(events.take()),
      ready_(messages_->take_event()) {
  digest_.kind = OperationKind::kSend;
  digest_.type = message.is_send ? message.out.type : message.in.type;
  digest_.count = message.is_send ? message.out.count : message.in.count;
  digest_.root = static_cast<int32_t>(message.tag);
  gpu::check(cudaEventRecord(ready_.event, caller), "cudaEventRecord on the caller's stream");
  if (message.is_send) {
    if (const auto shown = messages_->show(message.out)) offer_.memory = *shown;
    offer_.handle = ready_.handle;
    offer_.event = ready_.number;
    offer_.number = messages_->next_number();
    if (offer_.memory.allocation == 0) {
      host_ = pinned_->take(pinned_, message.out.num_bytes());
      gpu::check(cudaStreamWaitEvent(copies_, ready_.event, 0), "cudaStreamWaitEvent");
      copy(host_.get(), message.out.bytes, message.out.num_bytes());
    }
    thanked_ = start(false, kThanksLane, offer_.number, &thanks_, sizeof thanks_);
  }
  offered_ = start(message.is_send, kOfferLane, message.tag, &offer_, sizeof offer_);
}

IpcMessageTask::~IpcMessageTask() {
  // The event of a message that has failed may still be waited for.
  if (done_.load(std::memory_order_acquire)) messages_->give_back(ready_);
}

Endpoint::Ticket IpcMessageTask::start(bool is_send, uint16_t lane, uint32_t tag, void* data, size_t num_bytes) {
  FrameHeader header;
  header.lane = lane;
  header.tag = tag;
  header.digest = digest_;
  header.fingerprint = fingerprint(digest_, impl_->group.id);
  auto* bytes = static_cast<std::byte*>(data);
  return is_send ? impl_->endpoint->start_send(message_.peer, header, ConstBytes(bytes, num_bytes))
                 : impl_->endpoint->start_recv(message_.peer, header, Bytes(bytes, num_bytes));
}

bool IpcMessageTask::has_come(const Endpoint::Ticket& ticket) {
  if (!ticket->done.load(std::memory_order_acquire)) impl_->endpoint->progress();
  return ticket->done.load(std::memory_order_acquire);
}

void IpcMessageTask::copy(void* out, const void* in, size_t num_bytes) {
  gpu::check(cudaMemcpyAsync(out, in, num_bytes, cudaMemcpyDefault, copies_), "cudaMemcpyAsync of a message");
  gpu::check(cudaEventRecord(copied_.get(), copies_), "cudaEventRecord");
  copying_ = true;
}

bool IpcMessageTask::has_ended(cudaEvent_t event) {
  const cudaError_t answer = cudaEventQuery(event);
  if (answer == cudaErrorNotReady) return false;
  gpu::check(answer, "cudaEventQuery of a message");
  return true;
}

bool IpcMessageTask::is_done() {
  if (done_.load(std::memory_order_acquire)) return true;
  std::lock_guard lock(mutex_);
  if (failed_) std::rethrow_exception(failed_);
  try {
    const DeviceGuard guard(device_);
    return advance();
  } catch (...) {
    failed_ = std::current_exception();  // whoever asks first may not be the one who deals with it
    throw;
  }
}

bool IpcMessageTask::advance() {
  if (!(message_.is_send ? advance_send() : advance_recv())) return false;
  host_.reset();
  enqueued_.store(true, std::memory_order_release);
  done_.store(true, std::memory_order_release);
  return true;
}

bool IpcMessageTask::advance_send() {
  if (host_ && !data_) {
    if (!has_ended(copied_.get())) return false;
    data_ = start(true, kDataLane, offer_.number, host_.get(), message_.out.num_bytes());
  }
  return has_come(offered_) && (!data_ || has_come(data_)) && has_come(thanked_);
}

bool IpcMessageTask::advance_recv() {
  if (!has_come(offered_)) return false;
  if (!copying_) {
    const size_t num_bytes = message_.in.num_bytes();
    if (offer_.memory.allocation != 0) {
      if (!has_ended(messages_->open(message_.peer, IpcEvent{nullptr, offer_.handle, offer_.event}))) return false;
      const std::byte* from = messages_->open(message_.peer, offer_.memory);
      gpu::check(cudaStreamWaitEvent(copies_, ready_.event, 0), "cudaStreamWaitEvent");
      copy(message_.in.bytes, from, num_bytes);
    } else {
      if (!data_) {
        host_ = pinned_->take(pinned_, num_bytes);
        data_ = start(false, kDataLane, offer_.number, host_.get(), num_bytes);
      }
      if (!has_come(data_)) return false;
      gpu::check(cudaStreamWaitEvent(copies_, ready_.event, 0), "cudaStreamWaitEvent");
      copy(message_.in.bytes, host_.get(), num_bytes);
    }
    enqueued_.store(true, std::memory_order_release);
  }
  if (!thanked_) {
    if (!has_ended(copied_.get())) return false;
    thanked_ = start(true, kThanksLane, offer_.number, &thanks_, sizeof thanks_);
  }
  return has_come(thanked_);
}

void IpcMessageTask::wait_on(void* stream) {
  if (done_.load(std::memory_order_acquire)) return;
  gpu::check(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), copied_.get(), 0), "cudaStreamWaitEvent");
}

}  // namespace trireme
