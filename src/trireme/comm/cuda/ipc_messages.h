// Messages between two processes on one GPU: the receiver copies straight from the sender's memory.
//
//   sender     offers: where the data is, and the event after which it is there
//   receiver   opens both, copies once the event has come, and when the copy is done
//   receiver   thanks: the sender's memory is its own again
//
// The host looks for the event; the stream of copies does not wait for it. Else a message whose data comes late would
// hold up one behind it, on which that data may depend.
//
// Offers match as messages of host memory do: by tag, in order, with type and count checked. Memory that the receiver
// cannot open goes after its offer by way of the host. What follows an offer has the offer's number instead of the tag,
// so that two messages never take each other's answers.
#pragma once

#include <atomic>
#include <map>
#include <mutex>

#include "trireme/comm/communicator_impl.h"
#include "trireme/comm/cuda/cuda_objects.h"
#include "trireme/comm/cuda/ipc_memory.h"

namespace trireme {

/// An event that other processes can open.
struct IpcEvent {
  cudaEvent_t event = nullptr;
  cudaIpcEventHandle_t handle{};
  uint64_t number = 0;
};

/// What all messages of a group share. Thread-safe.
class IpcMessages {
 public:
  explicit IpcMessages(int num_members) : memory_(num_members), opened_(static_cast<size_t>(num_members)) {}

  std::optional<ShownMemory> show(ConstData data);
  IpcEvent take_event();
  void give_back(const IpcEvent& event);
  const std::byte* open(int peer, const ShownMemory& shown);
  /// The peer's event; its own `event` is another process's and not looked at.
  cudaEvent_t open(int peer, const IpcEvent& event);
  uint32_t next_number() { return ++last_number_; }
  void close() noexcept;

 private:
  std::mutex mutex_;
  IpcMemory memory_;
  std::vector<IpcEvent> free_;
  uint64_t events_made_ = 0;
  std::vector<std::map<uint64_t, cudaEvent_t>> opened_;  // by member and the event's number
  std::atomic<uint32_t> last_number_{0};
};

class IpcMessageTask : public GpuTask {
 public:
  IpcMessageTask(Communicator::Impl& impl, std::shared_ptr<IpcMessages> messages, int device, const GpuMessage& message,
                 cudaStream_t caller, cudaStream_t copies, EventPool& events, std::shared_ptr<PinnedPool> pinned);
  ~IpcMessageTask() override;

  bool is_done() override;
  bool is_enqueued() const override { return enqueued_.load(std::memory_order_acquire); }
  bool inputs_are_ready() override { return cudaEventQuery(ready_.event) != cudaErrorNotReady; }
  void wait_on(void* stream) override;

 private:
  /// Fixed layout: it travels between processes.
  struct Offer {
    ShownMemory memory;  ///< nothing: the data comes by way of the host
    cudaIpcEventHandle_t handle;
    uint64_t event;
    uint32_t number;
    uint32_t reserved;
  };
  bool advance();
  bool advance_send();
  bool advance_recv();
  static bool has_ended(cudaEvent_t event);
  void copy(void* out, const void* in, size_t num_bytes);
  Endpoint::Ticket start(bool is_send, uint16_t lane, uint32_t tag, void* data, size_t num_bytes);
  bool has_come(const Endpoint::Ticket& ticket);

  Communicator::Impl* impl_;
  std::shared_ptr<IpcMessages> messages_;
  const int device_;
  const GpuMessage message_;
  const cudaStream_t copies_;
  std::shared_ptr<PinnedPool> pinned_;
  EventPool::Event copied_;
  IpcEvent ready_;
  OperationDigest digest_;
  std::mutex mutex_;  // guards what follows
  Offer offer_{};
  uint64_t thanks_ = 0;
  std::shared_ptr<std::byte> host_;
  Endpoint::Ticket offered_, data_, thanked_;
  bool copying_ = false;
  std::exception_ptr failed_;
  std::atomic<bool> enqueued_{false}, done_{false};
};

}  // namespace trireme
