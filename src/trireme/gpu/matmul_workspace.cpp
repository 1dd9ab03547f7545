#include "trireme/gpu/matmul_workspace.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <map>
#include <mutex>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::gpu::lt {
namespace {

struct Kept {
  std::mutex mutex;
  std::map<int, cublasLtHandle_t> handles;
  std::map<std::pair<int, Stream>, void*> workspaces;
};

/// Never destroyed: at the end of the process the driver may be gone before us.
Kept& kept() {
  static auto* all = new Kept;
  return *all;
}

}  // namespace

void check_lt(cublasStatus_t status, const std::string& doing) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(fmt::format("{} failed: {}", doing, cublasLtGetStatusString(status)));
}

int current_device() {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

cublasLtHandle_t handle() {
  const int device = current_device();
  Kept& all = kept();
  const std::lock_guard lock(all.mutex);
  const auto found = all.handles.find(device);
  if (found != all.handles.end()) return found->second;
  const CaptureBystander bystander;
  cublasLtHandle_t created = nullptr;
  check_lt(cublasLtCreate(&created), fmt::format("cublasLtCreate on device {}", device));
  all.handles.emplace(device, created);
  return created;
}

void* workspace(Stream stream) {
  const std::pair key(current_device(), stream);
  Kept& all = kept();
  const std::lock_guard lock(all.mutex);
  const auto found = all.workspaces.find(key);
  if (found != all.workspaces.end()) return found->second;
  const CaptureBystander bystander;
  void* memory = nullptr;
  check(cudaMalloc(&memory, kWorkspaceBytes), "cudaMalloc of 32 MiB of workspace for matrix products");
  all.workspaces.emplace(key, memory);
  return memory;
}

CaptureBystander::CaptureBystander() {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  check(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
  mode_ = mode;
}

CaptureBystander::~CaptureBystander() {
  auto mode = static_cast<cudaStreamCaptureMode>(mode_);
  cudaThreadExchangeStreamCaptureMode(&mode);
}

}  // namespace trireme::gpu::lt
