#include "trireme/gpu/matmul_search.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace trireme::gpu::lt {
namespace {

constexpr int kWarmUps = 3;
constexpr int kRounds = 3;
constexpr int kRunsPerRound = 4;
constexpr float kWorthwhile = 0.98f;

struct Event {
  Event() { check(cudaEventCreate(&event), "cudaEventCreate"); }
  ~Event() { cudaEventDestroy(event); }
  Event(const Event&) = delete;
  cudaEvent_t event = nullptr;
};

}  // namespace

size_t fastest(std::span<const cublasLtMatmulHeuristicResult_t> candidates, Stream stream,
               const std::function<bool(const cublasLtMatmulAlgo_t&)>& run) {
  Event start, stop;
  size_t best = SIZE_MAX;
  float best_ms = INFINITY;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const cublasLtMatmulAlgo_t& algorithm = candidates[i].algo;
    bool works = true;
    for (int j = 0; j < kWarmUps && works; ++j) works = run(algorithm);
    if (!works) continue;
    float least_ms = INFINITY;
    for (int round = 0; round < kRounds; ++round) {
      check(cudaEventRecord(start.event, stream), "cudaEventRecord");
      for (int j = 0; j < kRunsPerRound; ++j) run(algorithm);
      check(cudaEventRecord(stop.event, stream), "cudaEventRecord");
      check(cudaEventSynchronize(stop.event), "cudaEventSynchronize");
      float ms = 0;
      check(cudaEventElapsedTime(&ms, start.event, stop.event), "cudaEventElapsedTime");
      least_ms = std::min(least_ms, ms);
    }
    if (least_ms < best_ms * kWorthwhile) {
      best_ms = least_ms;
      best = i;
    }
  }
  return best;
}

}  // namespace trireme::gpu::lt
