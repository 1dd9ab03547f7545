// The device that a worker trains on, and the services that a trainer needs of it. A build without CUDA has only the
// CPU.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/compress/processor.h"

namespace trireme {

/// `name` is "cpu" or "cuda". With several GPUs a worker takes the one numbered like its local rank; if workers
/// outnumber GPUs, they share them. Throws UsageError that says what is missing (driver, GPU, code for it).
torch::Device open_device(const std::string& name, int local_rank);

/// Lets the communicator take tensors of the device. Collective; does nothing for the CPU. TRIREME_GPU_BACKEND chooses
/// between nccl and ipc (for workers on one GPU); by default it is ipc if possible, else nccl.
void attach_device(Communicator& comm, const torch::Device& device);

/// The current CUDA stream; null for the CPU.
void* current_stream(const torch::Device& device);
/// Waits for all work on the current stream. Throws Error if a kernel failed, or after ten minutes.
void synchronize(const torch::Device& device);

/// Compresses arrays on the device, on its own stream or, with `in_turn`, on the current stream; null for the CPU.
std::unique_ptr<Processor> make_processor(const torch::Device& device, bool in_turn = false);

/// to.copy_(from), for contiguous tensors of the same shape; on a GPU, dtype conversions run at memory speed.
void copy_into(const torch::Tensor& to, const torch::Tensor& from);

struct DeviceMemory {
  uint64_t now_bytes = 0;
  uint64_t peak_bytes = 0;
};
/// Device memory that libtorch has allocated for tensors; zeros for the CPU.
DeviceMemory device_memory(const torch::Device& device);

/// One kind of GPU work: a kernel, by name.
struct KernelTime {
  std::string name;
  double us = 0;  ///< total
  int64_t count = 0;
};
/// What the GPU did while `work` ran, longest first. Empty for the CPU.
std::vector<KernelTime> profile(const torch::Device& device, const std::function<void()>& work);

/// Device work that is enqueued repeatedly without being prepared again: a CUDA graph.
///
/// Owner: an update policy. Threads: one. Memory that the work reads must stay at its address: tensors made inside live
/// as long as the graph. Host code inside runs only once, in capture().
class DeviceGraph {
 public:
  explicit DeviceGraph(torch::Device device);
  ~DeviceGraph();
  DeviceGraph(const DeviceGraph&) = delete;

  bool captured() const { return captured_; }
  /// Runs `work` on a separate stream without computing anything, and records what it enqueues.
  void capture(const std::function<void()>& work);
  void replay();

 private:
  struct Inside;
  std::unique_ptr<Inside> inside_;
  bool captured_ = false;
};

/// Copies from pinned memory to the device while it computes, on a separate stream.
///
/// Owner: whoever feeds a step or a layer. Threads: one. Call in turn: upload(), then take() when the step begins,
/// done_with() when the uploaded memory has been read, and upload() again.
class UploadLane {
 public:
  explicit UploadLane(torch::Device device);
  ~UploadLane();
  UploadLane(const UploadLane&) = delete;

  struct Copy {
    torch::Tensor to, from;  ///< `from` is pinned
  };
  /// Enqueues the copies, after the point that done_with() marked.
  void upload(const std::vector<Copy>& copies);
  /// The stream on which uploads run in order.
  void* stream() const;
  /// Makes the current stream wait for the upload.
  void take();
  void done_with();
  /// Waits until the pinned memory of the last upload may be overwritten.
  void wait();

 private:
  struct Inside;
  std::unique_ptr<Inside> inside_;
};

}  // namespace trireme
