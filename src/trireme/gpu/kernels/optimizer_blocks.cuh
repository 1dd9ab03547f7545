// The table of parameter blocks as kernels see it.
#pragma once

#include <cstdint>

#include "trireme/gpu/kernels/optimizer.h"

namespace trireme::gpu {

/// Elements of a block: the blocks of sum_of_squares() in optimizer/kernels.cpp.
inline constexpr int kBlockElements = 4096;

/// At most kBlockElements of one parameter.
struct Block {
  float* master;
  void* compute;
  const void* gradient;
  const void* second_gradient;
  float* first;
  float* second;
  int32_t count;
  bool decays;
  bool aligned;  ///< all pointers to multiples of four elements
};

/// Block sums of one parameter that meet in one tree of up to kLeaves leaves.
struct Chunk {
  int64_t first_block;
  int32_t num_blocks;
};
inline constexpr int kLeavesPerLane = 16;
inline constexpr int kLeaves = 32 * kLeavesPerLane;

/// A parameter's chunks.
struct ChunkRange {
  int32_t first;
  int32_t count;
};

struct NormTable {
  const Block* blocks;
  int64_t num_blocks;
  const Chunk* chunks;
  int32_t num_chunks;
  const ChunkRange* parameters;
  int32_t num_parameters;
  double* block_sums;
  double* chunk_sums;
};

void launch_block_sums(const NormTable& table, Type gradient_type, Stream stream);
void launch_gradient_norm(const NormTable& table, Type gradient_type, StepValues* values, Stream stream);
void launch_update(const Block* blocks, int64_t num_blocks, Type gradient_type, Type compute_type,
                   const OptimizerSettings& settings, const StepValues* values, Stream stream);

}  // namespace trireme::gpu
