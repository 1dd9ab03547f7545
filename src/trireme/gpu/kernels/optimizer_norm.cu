// The norm of all gradients in two launches: a sum of squares for each block, then one block of threads for the tree.
//
// The order is that of sum_of_squares() in optimizer/kernels.cpp: sixteen lanes by element number modulo 16, a
// tree of the lanes, a tree of a parameter's blocks, and the parameters one after another.
#include "trireme/gpu/kernels/launch.cuh"
#include "trireme/gpu/kernels/optimizer_blocks.cuh"
#include "trireme/gpu/kernels/vector_io.cuh"

namespace trireme::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kThreadsPerBlock = 8;  ///< that share one parameter block: each sums two of its sixteen lanes
constexpr int kUnroll = 8;
constexpr int kTreeThreads = 1024;

/// The square of a float is exact in double, so the fused operation rounds as two would.
__device__ double plus_square(double sum, float value) { return __fma_rn(double{value}, double{value}, sum); }

template <typename T>
__global__ void __launch_bounds__(kThreads) block_sums_kernel(const NormTable table) {
  const int64_t index = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kThreadsPerBlock;
  const int part = static_cast<int>(threadIdx.x) % kThreadsPerBlock;
  double even = 0, odd = 0;
  if (index < table.num_blocks) {
    const Block block = table.blocks[index];
    const auto* gradient = static_cast<const T*>(block.gradient);
    const auto* second = static_cast<const T*>(block.second_gradient);
    int at = 2 * part;
    if (block.aligned && !second) {
      for (; at + 16 * (kUnroll - 1) + 1 < block.count; at += 16 * kUnroll) {
        Packed<T, 2> pairs[kUnroll];
#pragma unroll
        for (int i = 0; i < kUnroll; ++i) pairs[i].load(gradient + at + 16 * i);
#pragma unroll
        for (int i = 0; i < kUnroll; ++i) {
          even = plus_square(even, pairs[i][0]);
          odd = plus_square(odd, pairs[i][1]);
        }
      }
    }
    const auto value = [&](int i) {
      const auto one = static_cast<float>(gradient[i]);
      return second ? one + static_cast<float>(second[i]) : one;
    };
#pragma unroll 4
    for (; at < block.count; at += 16) {
      even = plus_square(even, value(at));
      if (at + 1 < block.count) odd = plus_square(odd, value(at + 1));
    }
  }
#pragma unroll
  for (int half = kThreadsPerBlock / 2; half > 0; half /= 2) {
    even += __shfl_down_sync(0xFFFFFFFFu, even, half, kThreadsPerBlock);
    odd += __shfl_down_sync(0xFFFFFFFFu, odd, half, kThreadsPerBlock);
  }
  if (part == 0 && index < table.num_blocks) table.block_sums[index] = even + odd;
}

/// The sum of a chunk's leaves: pairs of neighbours, level by level; who has no neighbour goes up alone. Lane 0 has it.
__device__ double chunk_sum(const double* leaves, int count) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first = lane * kLeavesPerLane;
  double values[kLeavesPerLane];
#pragma unroll
  for (int i = 0; i < kLeavesPerLane; ++i) values[i] = first + i < count ? leaves[first + i] : 0;
#pragma unroll
  for (int step = 1; step < kLeavesPerLane; step *= 2) {
#pragma unroll
    for (int i = 0; i < kLeavesPerLane; i += 2 * step) {
      if (first + i + step < count) values[i] += values[i + step];
    }
  }
  double sum = values[0];
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const double other = __shfl_down_sync(0xFFFFFFFFu, sum, step);
    if (lane % (2 * step) == 0 && (lane + step) * kLeavesPerLane < count) sum += other;
  }
  return sum;
}

/// The same for any number of leaves, by a warp, in place: values[0] is the sum.
__device__ void tree_sum(double* values, int count) {
  for (; count > 1; count = (count + kLeaves - 1) / kLeaves) {
    for (int first = 0; first < count; first += kLeaves) {
      const double sum = chunk_sum(values + first, min(kLeaves, count - first));
      __syncwarp();
      if (threadIdx.x % 32 == 0) values[first / kLeaves] = sum;
      __syncwarp();
    }
  }
}

__global__ void __launch_bounds__(kTreeThreads, 1) tree_kernel(const NormTable table, StepValues* values) {
  for (int i = static_cast<int>(threadIdx.x) / 32; i < table.num_chunks; i += kTreeThreads / 32) {
    const Chunk chunk = table.chunks[i];
    const double sum = chunk_sum(table.block_sums + chunk.first_block, chunk.num_blocks);
    if (threadIdx.x % 32 == 0) table.chunk_sums[i] = sum;
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x) / 32; i < table.num_parameters; i += kTreeThreads / 32) {
    tree_sum(table.chunk_sums + table.parameters[i].first, table.parameters[i].count);
  }
  __syncthreads();
  if (threadIdx.x >= 32) return;
  double sum = 0;
  for (int first = 0; first < table.num_parameters; first += 32) {  // a warp fetches what one thread would wait for
    const int i = first + static_cast<int>(threadIdx.x);
    const double mine = i < table.num_parameters ? table.chunk_sums[table.parameters[i].first] : 0;
    const int count = min(32, table.num_parameters - first);
    for (int lane = 0; lane < count; ++lane) sum += __shfl_sync(0xFFFFFFFFu, mine, lane);
  }
  if (threadIdx.x == 0) {
    const double norm = sqrt(sum) * values->factor;
    values->norm = norm;
    values->skipped = isfinite(norm) ? 0 : 1;
  }
}

}  // namespace

void launch_block_sums(const NormTable& table, Type gradient_type, Stream stream) {
  if (table.num_blocks == 0) return;
  const auto grid = static_cast<unsigned>(ceil_div(table.num_blocks * kThreadsPerBlock, kThreads));
  with_type(gradient_type, [&]<typename T>(TypeTag<T>) { block_sums_kernel<T><<<grid, kThreads, 0, stream>>>(table); });
  check_launch("block sums of gradients");
}

void launch_gradient_norm(const NormTable& table, Type gradient_type, StepValues* values, Stream stream) {
  launch_block_sums(table, gradient_type, stream);
  tree_kernel<<<1, kTreeThreads, 0, stream>>>(table, values);
  check_launch("norm of gradients");
}

}  // namespace trireme::gpu
