// Reductions in GPU memory with the bits of [Note: Reduction order], and copies to several places: one pass over
// memory.
#pragma once

#include <span>

#include "trireme/comm/types.h"
#include "trireme/gpu/types.h"

namespace trireme::gpu {

/// Every destination gets the reduction of all sources, element by element. A destination may be one of the sources;
/// other overlap, within a job or between jobs, is not allowed. Any alignment of elements will do; pointers that are
/// equal modulo 16 are fastest.
struct CombineJob {
  std::span<const void* const> sources;
  std::span<void* const> destinations;
  size_t count = 0;
};

constexpr int kMaxSources = 64;

/// Enqueues all jobs, which have equal numbers of sources and of destinations, in as few launches as the tables allow.
/// With kAverage sums are divided by `divisor`. One source is copied. Results have the bits of comm/reduce/reduce.h.
void enqueue_combine(Stream stream, ReduceOp op, DataType type, std::span<const CombineJob> jobs, size_t divisor = 1);

/// Loads all of this file's kernels now: loading one later can wait for kernels that are running.
void load_combine_kernels();

}  // namespace trireme::gpu
