// Gives a communicator its GPU: from then on operands of its operations may lie in GPU memory.
#pragma once

#include <string>

#include "trireme/comm/communicator.h"

namespace trireme {

struct GpuCommOptions {
  /// "nccl", "ipc" (all members share one GPU: [Note: One GPU]), or "auto": ipc where it is possible, else nccl.
  std::string backend = "auto";
  int device = -1;                       ///< -1: the calling thread's current device
  std::chrono::milliseconds timeout{0};  ///< 0: the default of the world
};

/// Collective. Groups that are split from `comm` later have the GPU, too. Where members of one host share a GPU and
/// NCCL is to be used, sets NCCL_HOSTID in this process's environment unless it is set: NCCL refuses two ranks that it
/// takes for neighbours on one GPU. Blocks while CUDA and NCCL start, some seconds at worst.
///
/// Throws UsageError on all members where one of them has no GPU, their wishes differ, or the backend is impossible;
/// CommError where setting up fails.
void attach_gpu(Communicator& comm, const GpuCommOptions& options = {});

/// "nccl", "ipc", or "" where no GPU is attached.
std::string gpu_backend_of(Communicator& comm);

}  // namespace trireme
