// `trireme bench comm --device cuda`: collectives on GPU memory, between processes that share a card and between cards.
#pragma once

#include <string>
#include <vector>

#include "trireme/measure/comm/table.h"

namespace trireme::measure {

/// A way of the communicator on GPUs.
struct GpuWay {
  const char* name;     ///< in the table and the cluster file
  const char* backend;  ///< TRIREME_GPU_BACKEND
  bool ordered;         ///< sums in the fixed order
};
inline constexpr GpuWay kGpuWays[] = {{"ipc", "ipc", true}, {"nccl", "nccl", true}, {"nccl, any order", "nccl", false}};

struct GpuPoint {
  Operation operation = Operation::kAllReduce;
  std::string way;
  int ranks = 0;
  uint64_t bytes = 0;
  double us = 0, copy_us = 0;
};

struct GpuCommRun {
  std::vector<GpuPoint> points;
  std::vector<std::string> notes;  ///< what could not be measured, and why

  /// Null where it was not measured.
  const GpuPoint* find(Operation operation, int ranks, const std::string& way, uint64_t bytes) const;
};

/// Measures each number of ranks with each backend that works here; progress goes to stderr. Throws Error where nothing
/// can be measured, UsageError in a build without GPU code.
GpuCommRun measure_gpu_comm(const CommOptions& options);

/// Latency and time per byte of an all-reduce's messages, from its smallest and its largest size.
std::vector<TransportCost> gpu_links(const CommOptions& options, const GpuCommRun& run);

}  // namespace trireme::measure
