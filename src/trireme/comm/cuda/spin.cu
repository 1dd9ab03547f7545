#include <cuda_runtime.h>

#include "trireme/comm/cuda/spin.h"

namespace trireme::gpu {
namespace {

__device__ unsigned long long now_ns() {
  unsigned long long time = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
  return time;
}

__global__ void spin(unsigned long long ns) {
  const unsigned long long start = now_ns();
  while (now_ns() - start < ns) __nanosleep(1000);
}

}  // namespace

void enqueue_spin(Stream stream, std::chrono::nanoseconds time) {
  auto ns = static_cast<unsigned long long>(time.count());
  void* arguments[] = {&ns};
  check(cudaLaunchKernel(reinterpret_cast<const void*>(spin), dim3(1), dim3(1), arguments, 0, stream),
        "cudaLaunchKernel of a spin");
}

}  // namespace trireme::gpu
