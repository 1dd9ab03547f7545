#include "trireme/tensor/device.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

#include <cstdlib>

#include "trireme/comm/cuda/gpu_communicator.h"
#include "trireme/compress/cuda/gpu_processor.h"
#include "trireme/gpu/device.h"
#include "trireme/gpu/kernels/pointwise.h"
#include "trireme/gpu/matmul.h"
#include "trireme/gpu/wait.h"

namespace trireme {

torch::Device open_device(const std::string& name, int local_rank) {
  if (name != "cuda") return torch::kCPU;
  const gpu::Device device = gpu::choose_device(local_rank);
  const torch::Device opened(torch::kCUDA, static_cast<c10::DeviceIndex>(device.index));
  c10::cuda::set_device(opened.index());
  // True float32: no TF32 in matmuls, and no timing-dependent choice of convolution algorithms.
  at::globalContext().setAllowTF32CuBLAS(false);
  at::globalContext().setAllowTF32CuDNN(false);
  return opened;
}

void attach_device(Communicator& comm, const torch::Device& device) {
  if (!device.is_cuda()) return;
  GpuCommOptions options;
  options.device = device.index();
  if (const char* backend = std::getenv("TRIREME_GPU_BACKEND")) options.backend = backend;
  attach_gpu(comm, options);
}

void* current_stream(const torch::Device& device) {
  return device.is_cuda() ? at::cuda::getCurrentCUDAStream(device.index()).stream() : nullptr;
}

std::unique_ptr<Processor> make_processor(const torch::Device& device, bool in_turn) {
  if (!device.is_cuda()) return nullptr;
  return make_gpu_processor(device.index(), in_turn ? std::optional(current_stream(device)) : std::nullopt);
}

void synchronize(const torch::Device& device) {
  if (!device.is_cuda()) return;
  gpu::wait_for(at::cuda::getCurrentCUDAStream(device.index()), "work");
}

void copy_into(const torch::Tensor& to, const torch::Tensor& from) {
  const auto type = [](const torch::Tensor& x) {
    return x.scalar_type() == torch::kFloat32    ? std::optional(gpu::Type::kFloat)
           : x.scalar_type() == torch::kFloat16  ? std::optional(gpu::Type::kHalf)
           : x.scalar_type() == torch::kBFloat16 ? std::optional(gpu::Type::kBFloat16)
                                                 : std::nullopt;
  };
  const bool converts = to.is_cuda() && from.is_cuda() && to.scalar_type() != from.scalar_type() && type(to) &&
                        type(from) && to.is_contiguous() && from.is_contiguous();
  if (!converts) {
    to.copy_(from);
    return;
  }
  gpu::convert(from.const_data_ptr(), *type(from), to.data_ptr(), *type(to), to.numel(),
               static_cast<gpu::Stream>(current_stream(to.device())));
}

DeviceMemory device_memory(const torch::Device& device) {
  if (!device.is_cuda()) return {};
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index());
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return {static_cast<uint64_t>(stats.allocated_bytes[kAll].current),
          static_cast<uint64_t>(stats.allocated_bytes[kAll].peak)};
}

struct DeviceGraph::Inside {
  at::cuda::CUDAGraph graph;
};

DeviceGraph::DeviceGraph(torch::Device) : inside_(std::make_unique<Inside>()) {}
DeviceGraph::~DeviceGraph() = default;

void DeviceGraph::capture(const std::function<void()>& work) {
  const auto stream = at::cuda::getStreamFromPool(/*isHighPriority=*/true);
  gpu::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  c10::cuda::CUDACachingAllocator::emptyCache();  // memory of the warm-up, which the graph's own pool needs
  const c10::cuda::CUDAStreamGuard guard(stream);
  gpu::warm_matmul(stream.stream());
  inside_->graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
  work();
  inside_->graph.capture_end();
  captured_ = true;
}

void DeviceGraph::replay() { inside_->graph.replay(); }

struct UploadLane::Inside {
  explicit Inside(c10::DeviceIndex device_) : device(device_), side(at::cuda::getStreamFromPool(true, device_)) {}
  const c10::DeviceIndex device;
  const at::cuda::CUDAStream side;
  at::cuda::CUDAEvent uploaded, read;
};

UploadLane::UploadLane(torch::Device device) : inside_(std::make_unique<Inside>(device.index())) {}
UploadLane::~UploadLane() = default;

void UploadLane::upload(const std::vector<Copy>& copies) {
  inside_->read.block(inside_->side);
  const c10::cuda::CUDAStreamGuard guard(inside_->side);
  for (const Copy& copy : copies) copy.to.copy_(copy.from, /*non_blocking=*/true);
  inside_->uploaded.record(inside_->side);
}

void* UploadLane::stream() const { return inside_->side.stream(); }
void UploadLane::take() { inside_->uploaded.block(at::cuda::getCurrentCUDAStream(inside_->device)); }
void UploadLane::done_with() { inside_->read.record(at::cuda::getCurrentCUDAStream(inside_->device)); }
void UploadLane::wait() { inside_->uploaded.synchronize(); }

}  // namespace trireme
