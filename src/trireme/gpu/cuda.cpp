// What the CUDA runtime says about GPUs.
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "trireme/base/deadline.h"
#include "trireme/base/error.h"
#include "trireme/gpu/device.h"
#include "trireme/gpu/probe.h"
#include "trireme/gpu/wait.h"

namespace trireme::gpu {
namespace {

constexpr std::chrono::minutes kWorkTimeout(10);
constexpr const char* kOnTheCpu = "train.device = \"cpu\" works without";

std::string version(int number) { return fmt::format("{}.{}", number / 1000, number % 1000 / 10); }

}  // namespace

void check(int code, const char* call) {
  if (code == cudaSuccess) return;
  const auto error = static_cast<cudaError_t>(code);
  cudaGetLastError();  // an error that is not sticky must not show up again in a later call
  throw Error(fmt::format("{} failed: {} ({})", call, cudaGetErrorString(error), cudaGetErrorName(error)),
              error == cudaErrorMemoryAllocation
                  ? "the GPU's memory is full: lower train.micro_batch, or run fewer workers on this GPU"
                  : "");
}

void wait_for(Stream stream, const char* work) {
  const Deadline deadline = Deadline::after(kWorkTimeout);
  while (true) {
    const cudaError_t answer = cudaStreamQuery(stream);
    if (answer != cudaErrorNotReady) return check(answer, fmt::format("{} on the GPU", work).c_str());
    if (deadline.expired()) {
      throw Error(fmt::format("the GPU has not finished its {} in {} minutes", work, kWorkTimeout.count()),
                  "a kernel hangs: nvidia-smi shows whether the GPU is busy; go on with --resume auto");
    }
    std::this_thread::yield();  // as the CUDA runtime does where it waits
  }
}

Survey survey() {
  Survey found;
  int driver = 0, runtime = 0, count = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  const cudaError_t answer = cudaGetDeviceCount(&count);
  if (driver == 0) {
    return {{}, "there is no NVIDIA driver on this machine", kOnTheCpu};
  }
  if (answer == cudaErrorInsufficientDriver) {
    return {{},
            fmt::format("the NVIDIA driver knows CUDA {}, this build needs {}", version(driver), version(runtime)),
            "install a newer driver; " + std::string(kOnTheCpu)};
  }
  if (answer != cudaSuccess || count == 0) {
    return {{},
            fmt::format("the NVIDIA driver shows no GPU ({})", cudaGetErrorString(answer)),
            "look at nvidia-smi and CUDA_VISIBLE_DEVICES; " + std::string(kOnTheCpu)};
  }
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, i), "cudaGetDeviceProperties");
    Device device;
    device.index = i;
    device.name = properties.name;
    device.major = properties.major;
    device.minor = properties.minor;
    device.num_multiprocessors = properties.multiProcessorCount;
    device.memory_bytes = properties.totalGlobalMem;
    found.devices.push_back(device);
  }
  return found;
}

Device choose_device(int local_rank) {
  Survey found = survey();
  if (!found.usable()) throw UsageError(found.problem, found.cure);
  Device device = found.devices[static_cast<size_t>(local_rank) % found.devices.size()];
  check(cudaSetDevice(device.index), "cudaSetDevice");
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  device.free_bytes = free;
  if (!has_kernels_for_current_device()) {
    throw UsageError(fmt::format("this build has no code for {} (compute capability {}.{})", device.name, device.major,
                                 device.minor),
                     fmt::format("build with -DCMAKE_CUDA_ARCHITECTURES={}{}", device.major, device.minor));
  }
  return device;
}

bool has_fp8(const Device& device) { return device.major * 10 + device.minor >= 89; }

}  // namespace trireme::gpu
