// The device that a worker trains on, and what a trainer needs of it. Without CUDA in the build there is the CPU alone.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/compress/processor.h"

namespace trireme {

/// `name` is "cpu" or "cuda". On several GPUs a worker takes the one of its number on the host; more workers than GPUs
/// share them. Throws UsageError that says what is missing (driver, GPU, code for it).
torch::Device open_device(const std::string& name, int local_rank);

/// Makes the communicator take tensors of the device; collective. Nothing for the CPU. TRIREME_GPU_BACKEND chooses
/// between nccl and ipc (workers that share a GPU); otherwise it is ipc where that is possible, else nccl.
void attach_device(Communicator& comm, const torch::Device& device);

/// The CUDA stream that operators go to now; null for the CPU.
void* current_stream(const torch::Device& device);
/// Returns when all that was started on the current stream is done. Throws Error where a kernel failed, or where ten
/// minutes were not enough.
void synchronize(const torch::Device& device);

/// Compresses arrays on the device, beside its other work or, `in_turn`, on the stream that is current now; null for
/// the CPU.
std::unique_ptr<Processor> make_processor(const torch::Device& device, bool in_turn = false);

/// to.copy_(from), for contiguous tensors of one shape; conversions of type on a GPU run at the speed of its memory.
void copy_into(const torch::Tensor& to, const torch::Tensor& from);

struct DeviceMemory {
  uint64_t now_bytes = 0;
  uint64_t peak_bytes = 0;
};
/// What libtorch has taken of the device for tensors; zeros for the CPU.
DeviceMemory device_memory(const torch::Device& device);

/// One kind of work that a GPU did.
struct KernelTime {
  std::string name;
  double us = 0;  ///< all together
  int64_t count = 0;
};
/// What the GPU did while `work` ran, the longest first. Nothing for the CPU.
std::vector<KernelTime> profile(const torch::Device& device, const std::function<void()>& work);

/// Work that is enqueued on the device again and again without being prepared again: a CUDA graph.
///
/// Owner: the trainer. Threads: one. What the work reads must stay where it is: tensors made inside live as long as the
/// graph. Host code inside runs once, in capture().
class DeviceGraph {
 public:
  explicit DeviceGraph(torch::Device device);
  ~DeviceGraph();
  DeviceGraph(const DeviceGraph&) = delete;

  bool captured() const { return captured_; }
  /// Runs `work` on a stream of its own without computing anything, and keeps what it would have enqueued.
  void capture(const std::function<void()>& work);
  void replay();

 private:
  struct Inside;
  std::unique_ptr<Inside> inside_;
  bool captured_ = false;
};

/// Copies from pinned memory to the device beside the computation, on a stream of their own.
///
/// Owner: whoever feeds a step or a layer. Threads: one. In turn: upload(), then take() where the step begins,
/// done_with() where the uploaded memory has been read, upload() again.
class UploadLane {
 public:
  explicit UploadLane(torch::Device device);
  ~UploadLane();
  UploadLane(const UploadLane&) = delete;

  struct Copy {
    torch::Tensor to, from;  ///< `from` is pinned
  };
  /// Starts after what done_with() marked.
  void upload(const std::vector<Copy>& copies);
  /// Where uploads go one after another.
  void* stream() const;
  /// The current stream waits for the upload.
  void take();
  void done_with();
  /// Returns when the pinned memory of the last upload may be written again.
  void wait();

 private:
  struct Inside;
  std::unique_ptr<Inside> inside_;
};

}  // namespace trireme
