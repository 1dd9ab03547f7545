#include "trireme/gpu/probe.h"

namespace trireme::gpu {
namespace {

__global__ void nothing() {}

}  // namespace

bool has_kernels_for_current_device() {
  cudaFuncAttributes attributes{};
  const bool found = cudaFuncGetAttributes(&attributes, nothing) == cudaSuccess;
  cudaGetLastError();
  return found;
}

}  // namespace trireme::gpu
