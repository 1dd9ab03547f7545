#include <algorithm>

#include "trireme/compress/cuda/dot.cuh"
#include "trireme/compress/cuda/grid.cuh"
#include "trireme/compress/cuda/low_rank_kernels.h"
#include "trireme/compress/formats/arithmetic.h"

namespace trireme::gpu {
namespace {

constexpr int kWarps = kThreads / 32;

// P = M Q: sixteen threads sum four rows with four columns of Q, each thread every sixteenth element, as the host's
// lanes do.
constexpr int kLanes = 16;
constexpr int kRowsEach = 4, kRanksEach = 4;
constexpr int kRowsOfGroup = kThreads / kLanes * kRowsEach;

__global__ void __launch_bounds__(kThreads)
    project_rows(const float* m, size_t rows, size_t columns, const float* q, size_t rank, float* p) {
  const size_t lane = threadIdx.x % kLanes;
  const size_t first = static_cast<size_t>(blockIdx.x) * kRowsOfGroup + threadIdx.x / kLanes * kRowsEach;
  const size_t first_k = static_cast<size_t>(blockIdx.y) * kRanksEach;
  float sums[kRowsEach][kRanksEach] = {};
  for (size_t j = lane; j < columns; j += kLanes) {
    float factors[kRanksEach];
    for (int k = 0; k < kRanksEach; ++k) factors[k] = first_k + k < rank ? q[(first_k + k) * columns + j] : 0.f;
    for (int r = 0; r < kRowsEach; ++r) {
      const float x = first + r < rows ? m[(first + r) * columns + j] : 0.f;
      for (int k = 0; k < kRanksEach; ++k) sums[r][k] += x * factors[k];
    }
  }
  for (int r = 0; r < kRowsEach; ++r) {
    for (int k = 0; k < kRanksEach; ++k) {
      float sum = sums[r][k];
      for (int half = kLanes / 2; half > 0; half /= 2) sum += __shfl_down_sync(0xffffffffu, sum, half, kLanes);
      if (lane == 0 && first + r < rows && first_k + k < rank) p[(first + r) * rank + first_k + k] = sum;
    }
  }
}

// Q = Mᵀ P: a thread sums over all rows, one after another, for a column of M and every eighth column of P. Tiles of M
// and P pass through shared memory; the next one is read while this one is summed.
constexpr int kTileRows = 128, kTileColumns = 32;
constexpr int kSumsEach = 4;
constexpr int kRanksOfGroup = kWarps * kSumsEach;
constexpr int kLoads = kTileRows / kWarps;

struct Tile {
  float m[kLoads], p[kLoads];  ///< what a thread reads of it
};

__device__ void read_tile(Tile& tile, const float* m, size_t rows, size_t columns, const float* p, size_t rank,
                          size_t first, size_t column, size_t k) {
  for (int i = 0; i < kLoads; ++i) {
    const size_t row = first + threadIdx.x / 32 + i * kWarps;
    tile.m[i] = row < rows && column < columns ? m[row * columns + column] : 0.f;
    tile.p[i] = row < rows && k < rank ? p[row * rank + k] : 0.f;
  }
}

__global__ void __launch_bounds__(kThreads)
    project_columns(const float* m, size_t rows, size_t columns, const float* p, size_t rank, float* q) {
  static_assert(kRanksOfGroup == 32, "a warp reads a row of P");
  __shared__ float of_m[kTileRows][kTileColumns], of_p[kTileRows][kRanksOfGroup];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const size_t column = static_cast<size_t>(blockIdx.x) * kTileColumns + lane;
  const size_t first_k = static_cast<size_t>(blockIdx.y) * kRanksOfGroup;
  const int num_sums = static_cast<int>(min(static_cast<size_t>(kRanksOfGroup), rank - first_k));
  float sums[kSumsEach] = {};
  Tile tile;
  read_tile(tile, m, rows, columns, p, rank, 0, column, first_k + lane);
  for (size_t first = 0; first < rows; first += kTileRows) {
    for (int i = 0; i < kLoads; ++i) {
      of_m[warp + i * kWarps][lane] = tile.m[i];
      of_p[warp + i * kWarps][lane] = tile.p[i];
    }
    __syncthreads();
    read_tile(tile, m, rows, columns, p, rank, first + kTileRows, column, first_k + lane);
    const int end = static_cast<int>(min(static_cast<size_t>(kTileRows), rows - first));
#pragma unroll
    for (int s = 0; s < kSumsEach; ++s) {
      if (warp + s * kWarps >= num_sums) break;
#pragma unroll 16
      for (int r = 0; r < end; ++r) sums[s] += of_p[r][warp + s * kWarps] * of_m[r][lane];
    }
    __syncthreads();
  }
#pragma unroll
  for (int s = 0; s < kSumsEach; ++s) {
    const int k = warp + s * kWarps;
    if (k < num_sums && column < columns) q[(first_k + k) * columns + column] = sums[s];
  }
}

// P Qᵀ: a thread has a column of eight rows; ranks are summed by fours, as the host does.
constexpr int kExpandRows = 8;

__global__ void __launch_bounds__(kThreads)
    expand_rows(const float* p, const float* q, size_t rows, size_t columns, size_t rank, bool subtract, float* out) {
  const size_t first = static_cast<size_t>(blockIdx.x) * kExpandRows;
  const size_t j = static_cast<size_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (j >= columns) return;
  const int num_rows = static_cast<int>(min(static_cast<size_t>(kExpandRows), rows - first));
  float values[kExpandRows] = {};
  if (subtract) {
    for (int r = 0; r < num_rows; ++r) values[r] = out[(first + r) * columns + j];
  }
  for (size_t k = 0; k < rank;) {
    const int width = rank - k >= 4 ? 4 : 1;
    float of_q[4];
    for (int w = 0; w < width; ++w) of_q[w] = q[(k + w) * columns + j];
    for (int r = 0; r < num_rows; ++r) {
      const float* const factors = p + (first + r) * rank + k;
      float sum = factors[0] * of_q[0];
      for (int w = 1; w < width; ++w) sum += factors[w] * of_q[w];
      values[r] = subtract ? values[r] - sum : k == 0 ? sum : values[r] + sum;
    }
    k += width;
  }
  for (int r = 0; r < num_rows; ++r) out[(first + r) * columns + j] = values[r];
}

// What is done to all matrices at once: a kernel is told of so many.
struct Thin {
  uint64_t first, count;  ///< where a factor begins, and its rows (of P) or columns (of Qᵀ)
};
struct Batch {
  static constexpr size_t kMost = 128;
  Thin matrices[kMost];
};

template <typename Function>
void for_batches(const LowRank& shape, bool of_p, Function&& launch) {
  for (size_t done = 0; done < shape.matrices.size(); done += Batch::kMost) {
    Batch batch;
    const size_t count = std::min(Batch::kMost, shape.matrices.size() - done);
    for (size_t i = 0; i < count; ++i) {
      const LowRank::Matrix& m = shape.matrices[done + i];
      batch.matrices[i] = of_p ? Thin{m.p, m.rows} : Thin{m.q, m.columns};
    }
    launch(batch, done, static_cast<unsigned>(count));
  }
}

/// By all threads of a group; each has every 256th element, of its own alone.
__device__ double dot_of_columns(const double* a, const double* b, size_t rows, double* lanes) {
  double sum = 0;
#pragma unroll 4
  for (size_t i = threadIdx.x; i < rows; i += kThreads) sum += a[i] * b[i];
  lanes[threadIdx.x] = sum;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (static_cast<int>(threadIdx.x) < half) lanes[threadIdx.x] += lanes[threadIdx.x + half];
    __syncthreads();
  }
  sum = lanes[0];
  __syncthreads();
  return sum;
}

/// A group of threads for each matrix.
__global__ void __launch_bounds__(kThreads)
    orthonormal_columns(const __grid_constant__ Batch batch, size_t rank, float* all_p, double* scratch) {
  static_assert(kThreads == kColumnLanes, "a thread is a lane of the host's sum");
  __shared__ double lanes[kThreads];
  const Thin of = batch.matrices[blockIdx.x];
  const size_t rows = of.count;
  float* const p = all_p + of.first;
  double* const columns = scratch + of.first;
  for (size_t i = threadIdx.x; i < rows; i += kThreads) {
    for (size_t k = 0; k < rank; ++k) columns[k * rows + i] = p[i * rank + k];
  }
  for (size_t k = 0; k < rank; ++k) {
    double* const column = columns + k * rows;
    const double before = dot_of_columns(column, column, rows, lanes);
    for (int pass = 0; pass < 2; ++pass) {
      for (size_t earlier = 0; earlier < k; ++earlier) {
        const double* const other = columns + earlier * rows;
        const double along = dot_of_columns(column, other, rows, lanes);
        for (size_t i = threadIdx.x; i < rows; i += kThreads) column[i] -= along * other[i];
      }
    }
    const double square = dot_of_columns(column, column, rows, lanes);
    const bool dependent = square <= before * 1e-12 || square < 1e-70;
    const double factor = dependent ? 0 : 1 / sqrt(square);
    for (size_t i = threadIdx.x; i < rows; i += kThreads) column[i] *= factor;
  }
  for (size_t i = threadIdx.x; i < rows; i += kThreads) {
    for (size_t k = 0; k < rank; ++k) p[i * rank + k] = static_cast<float>(columns[k * rows + i]);
  }
}

/// A group of threads for each row: sixteen blocks at a time, whose sums are added in their order.
__global__ void __launch_bounds__(kThreads)
    squares_of_rows(const __grid_constant__ Batch batch, const float* q, double* squares) {
  constexpr size_t kAtOnce = kThreads / kDotLanes;
  __shared__ double sums[kAtOnce];
  const Thin of = batch.matrices[blockIdx.x];
  const float* const row = q + of.first + blockIdx.y * of.count;
  const size_t own = threadIdx.x / kDotLanes;
  double total = 0;
  for (size_t first = 0; first < of.count; first += kAtOnce * kDotBlock) {
    const size_t begin = first + own * kDotBlock;
    const size_t count = begin < of.count ? min(kDotBlock, of.count - begin) : 0;
    const double sum = dot_of_block(row + begin, row + begin, count);
    if (threadIdx.x % kDotLanes == 0) sums[own] = sum;
    __syncthreads();
    for (size_t i = 0; threadIdx.x == 0 && i < kAtOnce && first + i * kDotBlock < of.count; ++i) total += sums[i];
    __syncthreads();
  }
  if (threadIdx.x == 0) squares[static_cast<size_t>(blockIdx.x) * gridDim.y + blockIdx.y] = total;
}

__global__ void __launch_bounds__(kThreads)
    scale_batch(const __grid_constant__ Batch batch, const float* factors, float* q) {
  const Thin of = batch.matrices[blockIdx.x];
  float* const row = q + of.first + blockIdx.y * of.count;
  const float factor = factors[static_cast<size_t>(blockIdx.x) * gridDim.y + blockIdx.y];
  for (size_t i = threadIdx.x; i < of.count; i += kThreads) row[i] *= factor;
}

unsigned groups(size_t count, size_t each) { return static_cast<unsigned>((count + each - 1) / each); }

}  // namespace

void project(const LowRank& shape, const float* group, const float* q, float* p, Stream stream) {
  for (const LowRank::Matrix& m : shape.matrices) {
    project_rows<<<dim3(groups(m.rows, kRowsOfGroup), groups(shape.rank, kRanksEach)), kThreads, 0, stream>>>(
        group + m.offset, m.rows, m.columns, q + m.q, shape.rank, p + m.p);
  }
  check_launch("project");
}

void project_back(const LowRank& shape, const float* group, const float* p, float* q, Stream stream) {
  for (const LowRank::Matrix& m : shape.matrices) {
    project_columns<<<dim3(groups(m.columns, kTileColumns), groups(shape.rank, kRanksOfGroup)), kThreads, 0, stream>>>(
        group + m.offset, m.rows, m.columns, p + m.p, shape.rank, q + m.q);
  }
  check_launch("project_back");
}

void expand(const LowRank& shape, const float* p, const float* q, bool subtract, float* group, Stream stream) {
  for (const LowRank::Matrix& m : shape.matrices) {
    expand_rows<<<dim3(groups(m.rows, kExpandRows), groups(m.columns, kThreads)), kThreads, 0, stream>>>(
        p + m.p, q + m.q, m.rows, m.columns, shape.rank, subtract, group + m.offset);
  }
  check_launch("expand");
}

void make_orthonormal(const LowRank& shape, float* p, double* columns, Stream stream) {
  for_batches(shape, true, [&](const Batch& batch, size_t, unsigned count) {
    orthonormal_columns<<<count, kThreads, 0, stream>>>(batch, shape.rank, p, columns);
  });
  check_launch("make_orthonormal");
}

void row_squares(const LowRank& shape, const float* q, double* squares, Stream stream) {
  const auto rank = static_cast<unsigned>(shape.rank);
  for_batches(shape, false, [&](const Batch& batch, size_t first, unsigned count) {
    squares_of_rows<<<dim3(count, rank), kThreads, 0, stream>>>(batch, q, squares + first * rank);
  });
  check_launch("row_squares");
}

void scale_rows(const LowRank& shape, const float* factors, float* q, Stream stream) {
  const auto rank = static_cast<unsigned>(shape.rank);
  for_batches(shape, false, [&](const Batch& batch, size_t first, unsigned count) {
    scale_batch<<<dim3(count, rank), kThreads, 0, stream>>>(batch, factors + first * rank, q);
  });
  check_launch("scale_rows");
}

}  // namespace trireme::gpu
