// What products on a device share: cuBLASLt's handle, and a workspace for each stream. Kept until the process ends.
#pragma once

#include <cublasLt.h>

#include "trireme/gpu/types.h"

namespace trireme::gpu::lt {

/// What cuBLAS recommends for Hopper.
inline constexpr size_t kWorkspaceBytes = size_t{32} << 20;

/// Throws Error with cuBLASLt's words unless `status` is success.
void check_lt(cublasStatus_t status, const std::string& doing);

int current_device();

/// Of the current device. Threads: all.
cublasLtHandle_t handle();
void* workspace(Stream stream);

/// Lets calls that a capture on another thread would forbid (cudaMalloc, waiting) go through, in this scope.
class CaptureBystander {
 public:
  CaptureBystander();
  ~CaptureBystander();
  CaptureBystander(const CaptureBystander&) = delete;

 private:
  int mode_;
};

}  // namespace trireme::gpu::lt
