#include "trireme/comm/cuda/ipc_operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <thread>

#include "trireme/comm/cuda/ipc_jobs.h"
#include "trireme/comm/cuda/ordered_sum.h"

namespace trireme {

/// What a member tells the others at the meeting.
struct IpcOperations::Shown {
  ShownMemory in, out;
  bool is_ready = false;  ///< nothing is under way in front of the operands: no event to wait for
};

IpcOperations::IpcOperations(Communicator& comm, int device, const CallOptions& options)
    : GpuBackend(comm.impl(), device), memory_(comm.size()), ready_(static_cast<size_t>(comm.size())) {
  messages_ = std::make_shared<IpcMessages>(comm.size());
  const DeviceGuard guard(device);
  struct Handles {
    cudaIpcEventHandle_t ready[kSlots], done[kSlots];
  };
  Handles mine{};
  std::array<cudaEvent_t, kSlots>& own = ready_[static_cast<size_t>(rank())];
  for (size_t slot = 0; slot < kSlots; ++slot) {
    for (cudaEvent_t* event : {&own[slot], &done_[slot]}) {
      if (event == &done_[slot] && !leads()) continue;
      gpu::check(cudaEventCreateWithFlags(event, cudaEventDisableTiming | cudaEventInterprocess),
                 "cudaEventCreateWithFlags of an event between processes");
      if (size() == 1) continue;
      gpu::check(cudaIpcGetEventHandle(event == &own[slot] ? &mine.ready[slot] : &mine.done[slot], *event),
                 "cudaIpcGetEventHandle");
    }
  }
  if (size() == 1) return;
  std::vector<Handles> all(static_cast<size_t>(size()));
  comm.all_gather(ConstData(&mine, sizeof mine, DataType::kUInt8),
                  Data(all.data(), all.size() * sizeof(Handles), DataType::kUInt8), options);
  // Only the leader waits for the others' events, and they for its own.
  for (size_t slot = 0; slot < kSlots; ++slot) {
    if (!leads()) gpu::check(cudaIpcOpenEventHandle(&done_[slot], all[0].done[slot]), "cudaIpcOpenEventHandle");
    for (size_t member = 1; leads() && member < all.size(); ++member)
      gpu::check(cudaIpcOpenEventHandle(&ready_[member][slot], all[member].ready[slot]), "cudaIpcOpenEventHandle");
  }
}

IpcOperations::~IpcOperations() {
  if (!is_healthy()) return;
  cudaStreamSynchronize(stream_);
  memory_.close();
  messages_->close();
  for (const Stage& stage : {stage_in_, stage_out_}) {
    if (stage.memory != nullptr) cudaFree(stage.memory);
  }
  for (void* memory : outgrown_) cudaFree(memory);
  for (const auto& events : ready_) {
    for (const cudaEvent_t event : events) {
      if (event != nullptr) cudaEventDestroy(event);
    }
  }
  // The leader's own events stay: a member may still be asking whether the last operation is done.
  for (const cudaEvent_t event : done_) {
    if (event != nullptr && !leads()) cudaEventDestroy(event);
  }
}

std::shared_ptr<GpuTask> IpcOperations::begin(void* stream, bool at_once) {
  // What follows at once records the shared event itself, on the caller's stream: no second one is needed.
  if (at_once) return std::make_shared<CudaTask>(*this, stream);
  return GpuBackend::begin(stream, at_once);
}

std::shared_ptr<GpuTask> IpcOperations::start_message(const GpuMessage& message, void* stream) {
  // A process cannot open its own memory.
  if (message.peer == rank()) return GpuBackend::start_message(message, stream);
  const DeviceGuard guard(device_);
  return std::make_shared<IpcMessageTask>(*impl_, messages_, device_, message, static_cast<cudaStream_t>(stream),
                                          message_stream_, *events_, pinned_);
}

std::unique_ptr<GpuOperations> IpcOperations::split(Communicator* child, int, int) {
  if (child == nullptr) return nullptr;
  return std::make_unique<IpcOperations>(*child, device_);
}

void IpcOperations::abort() noexcept {
  if (!is_healthy()) return;
  set_unhealthy();
  // A leader that has died will not finish: whoever waits for its events is let go. The data is worth nothing now, and
  // every later call says so.
  try {
    const DeviceGuard guard(device_);
    cudaStream_t stream = nullptr;
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) return;
    if (!leads()) {
      for (const cudaEvent_t event : done_) cudaEventRecord(event, stream);
    }
  } catch (const std::exception&) {
    // The device itself is lost: nothing waits any more.
  }
}

bool IpcOperations::shows_input(const GpuRequest& request) const {
  const bool of_root = request.kind == OperationKind::kBroadcast || request.kind == OperationKind::kScatter;
  return request.in.count > 0 && (!of_root || request.root == rank());
}

bool IpcOperations::shows_output(const GpuRequest& request) const {
  if (request.kind == OperationKind::kBroadcast) return request.out.count > 0 && request.root != rank();
  const bool of_root = request.kind == OperationKind::kGather || request.kind == OperationKind::kReduce;
  return request.out.count > 0 && (!of_root || request.root == rank());
}

void IpcOperations::wait_for_slot(const BoardCollectives::Call& call, size_t slot) {
  const std::shared_ptr<CudaTask> before = std::move(tasks_[slot]);
  while (before && !before->is_done()) {
    call.waiter.check();
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

void IpcOperations::copy(void* out, const void* in, size_t num_bytes) {
  gpu::check(cudaMemcpyAsync(out, in, num_bytes, cudaMemcpyDeviceToDevice, stream_), "cudaMemcpyAsync of a stage");
}

ShownMemory IpcOperations::show(ConstData data, Stage& stage, bool& staged) {
  if (const auto direct = memory_.show(data.bytes, data.num_bytes())) return *direct;
  staged = true;
  if (stage.size < data.num_bytes()) {
    const size_t size = std::bit_ceil(std::max<size_t>(data.num_bytes(), size_t{2} << 20));
    void* memory = nullptr;
    gpu::check(cudaMalloc(&memory, size), "cudaMalloc of a stage");
    if (stage.memory != nullptr) outgrown_.push_back(stage.memory);
    stage = {memory, size};
  }
  const auto shown = memory_.show(stage.memory, data.num_bytes());
  if (!shown) {
    throw UsageError("other processes cannot open this process's GPU memory",
                     "use backend nccl; in a container, start it with --ipc=host");
  }
  return *shown;
}

void IpcOperations::enqueue(const BoardCollectives::Call& call, const GpuRequest& request, GpuTask& base) {
  auto& task = static_cast<CudaTask&>(base);
  const DeviceGuard guard(device_);
  const size_t p = static_cast<size_t>(size()), me = static_cast<size_t>(rank());
  const size_t slot = operations_++ % kSlots;
  wait_for_slot(call, slot);
  std::vector<size_t> counts;
  if (request.kind == OperationKind::kAllToAllV) counts = exchange_counts(call, request);

  Shown mine{};
  bool in_is_staged = false, out_is_staged = false;
  const bool in_place = request.kind == OperationKind::kAllReduce;  // one buffer, shown as the input
  if (shows_input(request)) mine.in = show(request.in, stage_in_, in_is_staged);
  if (in_place) {
    mine.out = mine.in;
    out_is_staged = in_is_staged;
  } else if (shows_output(request)) {
    mine.out = show(request.out, stage_out_, out_is_staged);
  }
  const void* const out_stage = in_place ? stage_in_.memory : stage_out_.memory;

  // An event of a process takes its turn on the GPU, some hundred microseconds where others share it: none is recorded
  // that would say only what the host sees already.
  const cudaEvent_t ready = ready_[me][slot];
  mine.is_ready = !in_is_staged && !out_is_staged &&
                  (task.ready() ? cudaEventQuery(task.ready()) : cudaStreamQuery(task.stream())) == cudaSuccess;
  if (mine.is_ready) {
    // The leader need not wait.
  } else if (task.ready() == nullptr && !in_is_staged && !out_is_staged) {
    gpu::check(cudaEventRecord(ready, task.stream()), "cudaEventRecord on the caller's stream");
  } else {
    if (task.ready() == nullptr) task.record_ready(events_->take());
    gpu::check(cudaStreamWaitEvent(stream_, task.ready(), 0), "cudaStreamWaitEvent for the operands");
    if (in_is_staged) {
      // The stage is still in use until the operation before this one is done.
      if (operations_ > 1)
        gpu::check(cudaStreamWaitEvent(stream_, done_[(operations_ - 2) % kSlots], 0), "cudaStreamWaitEvent");
      copy(stage_in_.memory, request.in.bytes, request.in.num_bytes());
    }
    gpu::check(cudaEventRecord(ready, stream_), "cudaEventRecord of the operands");
  }
  if (task.ready() == nullptr && !mine.is_ready) task.share_ready(ready);

  std::vector<Shown> all(p);
  exchange(call, &mine, all.data(), sizeof(Shown));
  const cudaEvent_t done = done_[slot];
  if (leads()) {
    for (size_t member = 0; member < p; ++member) {
      if (all[member].is_ready) continue;
      gpu::check(cudaStreamWaitEvent(stream_, ready_[member][slot], 0), "cudaStreamWaitEvent for a member's operands");
    }
    lead(request, all, counts);
    gpu::check(cudaEventRecord(done, stream_), "cudaEventRecord of an operation");
  }
  tasks_[slot] = std::static_pointer_cast<CudaTask>(task.shared_from_this());
  meet(call);
  if (out_is_staged) {
    if (!leads()) gpu::check(cudaStreamWaitEvent(stream_, done, 0), "cudaStreamWaitEvent for the leader");
    copy(request.out.bytes, out_stage, request.out.num_bytes());
    EventPool::Event own = events_->take();
    const cudaEvent_t event = own.get();
    gpu::check(cudaEventRecord(event, stream_), "cudaEventRecord of an operation");
    task.set_enqueued(event, std::move(own));
  } else {
    task.set_enqueued(done);
  }
  count_traffic(request);
}

void IpcOperations::lead(const GpuRequest& request, const std::vector<Shown>& all, const std::vector<size_t>& counts) {
  IpcPlaces places;
  for (int member = 0; member < size(); ++member) {
    const Shown& shown = all[static_cast<size_t>(member)];
    const auto at = [&](const ShownMemory& memory) -> std::byte* {
      if (memory.allocation == 0) return nullptr;
      // A process cannot open its own memory.
      if (member == rank()) return reinterpret_cast<std::byte*>(memory.base + memory.offset);
      return memory_.open(member, memory);
    };
    places.in.push_back(at(shown.in));
    places.out.push_back(at(shown.out));
  }
  const IpcJobs jobs = make_ipc_jobs(request, places, counts);
  gpu::enqueue_combine(stream_, request.op, type_of(request), jobs.list(), static_cast<size_t>(size()));
}

}  // namespace trireme
