// Times of operators on plain tensors and on mesh tensors, on this thread.
#pragma once

#include <string>
#include <vector>

namespace trireme::cli {

struct TensorTiming {
  std::string name;
  std::string placements;  ///< of the inputs: "replicate, one worker", "shard(0); shard(0), two workers"
  int calls = 1;           ///< operators that the body runs
  double plain_us = 0;     ///< median, on tensors of the local sizes
  double mesh_us = 0;
};

/// Operators whose names contain `only`. Runs two ranks as threads, of which one measures; nothing is communicated.
std::vector<TensorTiming> measure_tensor_overhead(const std::string& only);

}  // namespace trireme::cli
