// The kernels of layer norm (kCentred) and RMS norm. A team of threads, a warp or a block, holds a row in registers and
// takes row after row; what belongs to the columns (scale, shift and sums of their gradients) stays in registers too.
//
//   columns of a thread:  (k · team + thread) · N … + N − 1  for k < K;  K · N = kColumns
#pragma once

#include <algorithm>
#include <string>
#include <type_traits>

#include "trireme/base/error.h"
#include "trireme/gpu/kernels/launch.cuh"
#include "trireme/gpu/kernels/norm.h"
#include "trireme/gpu/kernels/reduce.cuh"
#include "trireme/gpu/kernels/vector_io.cuh"

namespace trireme::gpu {

/// Threads of a row and columns of a thread; an element takes `bytes` of a register.
template <int team, int columns, int bytes>
struct NormTeam {
  static constexpr int kTeam = team;
  static constexpr int kColumns = columns;
  static constexpr int kThreads = team == 32 ? 256 : team;
  static constexpr int kRows = kThreads / team;  ///< that a block works on at a time
  /// The backward holds two sums a column, three rows, and some forty values besides. So many blocks a multiprocessor.
  static constexpr int kRegisters = (2 * columns + 3 * columns * bytes / 4 + 40 + 7) / 8 * 8;
  static constexpr int kResident = std::max(1, 65536 / (kThreads * kRegisters));
  static int64_t backward_blocks(int64_t rows) {
    return std::clamp<int64_t>(ceil_div(rows, kRows), 1, kResident * kMultiprocessors);
  }
};

/// Calls `function` with the team for rows of this width.
template <int bytes, typename Function>
void with_norm_team(int64_t width, Function&& function) {
  if (width > 16384) {
    throw UsageError("norms on a GPU have rows of at most 16384 elements, not " + std::to_string(width),
                     "lower model.hidden");
  }
  if (width <= 256) return function(NormTeam<32, 8, bytes>{});
  if (width <= 512) return function(NormTeam<32, 16, bytes>{});
  if constexpr (bytes == 2) {
    if (width <= 768) return function(NormTeam<32, 24, bytes>{});
  }
  if (width <= 1024) return function(NormTeam<128, 8, bytes>{});
  if (width <= 2048) return function(NormTeam<256, 8, bytes>{});
  if constexpr (bytes == 2) {
    if (width <= 4096) return function(NormTeam<256, 16, bytes>{});
    if (width <= 6144) return function(NormTeam<256, 24, bytes>{});
  } else {
    if (width <= 4096) return function(NormTeam<512, 8, bytes>{});
  }
  if (width <= 8192) return function(NormTeam<512, 16, bytes>{});
  if constexpr (bytes == 2) {
    if (width <= 12288) return function(NormTeam<512, 24, bytes>{});
  }
  return function(NormTeam<512, 32, bytes>{});
}

template <typename T, int N, typename Team>
struct NormRow {
  static constexpr int K = Team::kColumns / N;
  Packed<T, N> chunks[K];

  static __device__ int column(int k) { return (k * Team::kTeam + static_cast<int>(threadIdx.x) % Team::kTeam) * N; }

  /// Zeros beyond the width, or where there is no such row.
  __device__ void load(const T* matrix, int64_t row, int width, bool there) {
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (there && column(k) < width) {
        chunks[k].load(matrix + row * width + column(k));
      } else {
        chunks[k].clear();
      }
    }
  }
};

/// A float a column, zeros beyond the width. Once a launch, so plain loads do.
template <int N, typename Team>
struct NormColumns {
  static constexpr int K = Team::kColumns / N;
  float values[K][N];

  __device__ void load(const float* from, int width) {
#pragma unroll
    for (int k = 0; k < K; ++k) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const int column = (k * Team::kTeam + static_cast<int>(threadIdx.x) % Team::kTeam) * N + i;
        values[k][i] = from && column < width ? from[column] : 0;
      }
    }
  }
};

template <typename T, int N, typename Team, bool kCentred>
__global__ void __launch_bounds__(Team::kThreads)
    norm_forward(int64_t rows, int width, const T* __restrict__ x, const float* __restrict__ scale,
                 const float* __restrict__ shift, float eps, T* __restrict__ y, float* __restrict__ mean,
                 float* __restrict__ rstd) {
  using Row = NormRow<T, N, Team>;
  __shared__ typename TeamSum<Team::kTeam>::Shared shared;
  TeamSum<Team::kTeam> sum{&shared};
  NormColumns<N, Team> scales, shifts;
  scales.load(scale, width);
  if constexpr (kCentred) shifts.load(shift, width);

  const int64_t step = static_cast<int64_t>(gridDim.x) * Team::kRows;
  int64_t row = static_cast<int64_t>(blockIdx.x) * Team::kRows + threadIdx.x / Team::kTeam;
  Row next;
  next.load(x, row, width, row < rows);
  for (; row < rows; row += step) {
    const Row now = next;
    next.load(x, row + step, width, row + step < rows);  // on its way while this row is worked on

    float centre = 0;
    if constexpr (kCentred) {
      float total = 0;
#pragma unroll
      for (int k = 0; k < Row::K; ++k) {
#pragma unroll
        for (int i = 0; i < N; ++i) total += now.chunks[k][i];
      }
      centre = sum(total) / static_cast<float>(width);
    }
    float squares = 0;
#pragma unroll
    for (int k = 0; k < Row::K; ++k) {
      if (Row::column(k) >= width) continue;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float distance = now.chunks[k][i] - centre;
        squares = fmaf(distance, distance, squares);
      }
    }
    const float inverse = 1 / sqrtf(sum(squares) / static_cast<float>(width) + eps);

#pragma unroll
    for (int k = 0; k < Row::K; ++k) {
      if (Row::column(k) >= width) continue;
      float values[N];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float normal = (now.chunks[k][i] - centre) * inverse;
        values[i] = kCentred ? fmaf(normal, scales.values[k][i], shifts.values[k][i]) : normal * scales.values[k][i];
      }
      Packed<T, N> result;
      result.set(values);
      if (y) result.store(y + row * width + Row::column(k));
    }
    if (threadIdx.x % Team::kTeam == 0) {
      if constexpr (kCentred) mean[row] = centre;
      rstd[row] = inverse;
    }
  }
}

/// The scales in shared memory, read again for each row: in registers they would push others out. The first team of
/// a block writes them for all.
template <int N, typename Team>
struct NormScales {
  static constexpr int V = std::min(N, 4);
  static constexpr size_t kBytes = sizeof(float) * Team::kTeam * Team::kColumns;
  struct alignas(4 * V) Part {
    float values[V];
  };
  Part* mine;

  __device__ void load(const float* from, int width) {
    extern __shared__ float4 dynamic[];
    mine = reinterpret_cast<Part*>(dynamic) + threadIdx.x % Team::kTeam;
    NormColumns<N, Team> columns;
    columns.load(from, width);
    if (threadIdx.x < Team::kTeam) {
#pragma unroll
      for (int j = 0; j < Team::kColumns; ++j) mine[j / V * Team::kTeam].values[j % V] = columns.values[j / N][j % N];
    }
    __syncthreads();
  }

  __device__ void get(int k, float (&factors)[N]) const {
    asm volatile("" ::: "memory");  // or the compiler would keep them in registers all the same
#pragma unroll
    for (int part = 0; part < N / V; ++part) {
      const Part loaded = mine[(k * (N / V) + part) * Team::kTeam];
#pragma unroll
      for (int i = 0; i < V; ++i) factors[part * V + i] = loaded.values[i];
    }
  }
};

/// Writes dx, and for its rows a partial sum of the gradients of scale (and, after it, of shift) to `partials`.
template <typename T, int N, typename Team, bool kCentred>
__global__ void __launch_bounds__(Team::kThreads, Team::kResident)
    norm_backward(int64_t rows, int width, const T* dy, const T* x, const float* __restrict__ scale,
                  const float* __restrict__ mean, const float* __restrict__ rstd, const T* residual, T* dx,
                  float* __restrict__ partials) {
  using Row = NormRow<T, N, Team>;
  constexpr int K = Row::K;
  __shared__ typename TeamSum<Team::kTeam>::Shared shared;
  TeamSum<Team::kTeam> sum{&shared};
  NormScales<N, Team> scales;
  scales.load(scale, width);
  float scale_sums[K][N] = {}, shift_sums[K][N] = {};

  const int64_t step = static_cast<int64_t>(gridDim.x) * Team::kRows;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * Team::kRows + threadIdx.x / Team::kTeam; row < rows;
       row += step) {
    Row gradient, input, past;
    gradient.load(dy, row, width, true);
    input.load(x, row, width, true);
    past.load(residual, row, width, residual != nullptr);
    const float centre = kCentred ? mean[row] : 0;
    const float inverse = rstd[row];

    float2 sums = {0, 0};
#pragma unroll
    for (int k = 0; k < K; ++k) {
      float factors[N];
      scales.get(k, factors);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float normal = (input.chunks[k][i] - centre) * inverse;
        const float through = gradient.chunks[k][i] * factors[i];  // 0 beyond the width
        if constexpr (kCentred) {
          sums.x += through;
          shift_sums[k][i] += gradient.chunks[k][i];
        }
        sums.y = fmaf(through, normal, sums.y);
        scale_sums[k][i] = fmaf(gradient.chunks[k][i], normal, scale_sums[k][i]);
      }
    }
    if constexpr (kCentred) {
      sums = sum(sums);
    } else {
      sums.y = sum(sums.y);
    }
    const float constant = sums.x / static_cast<float>(width), slope = sums.y / static_cast<float>(width);
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (Row::column(k) >= width) continue;
      float values[N], factors[N];
      scales.get(k, factors);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float normal = (input.chunks[k][i] - centre) * inverse;
        float inside = gradient.chunks[k][i] * factors[i];
        if constexpr (kCentred) inside -= constant;
        values[i] = fmaf(fmaf(-normal, slope, inside), inverse, past.chunks[k][i]);
      }
      Packed<T, N> result;
      result.set(values);
      result.store(dx + row * width + Row::column(k));
    }
  }

  float* const partial = partials + static_cast<int64_t>(blockIdx.x) * width * (kCentred ? 2 : 1);
  const auto write = [&](const float(&sums)[K][N], float* to) {
    if constexpr (Team::kRows == 1) {
#pragma unroll
      for (int k = 0; k < K; ++k) {
#pragma unroll
        for (int i = 0; i < N; ++i) {
          if (Row::column(k) + i < width) to[Row::column(k) + i] = sums[k][i];
        }
      }
    } else {  // the warps add theirs one after another; neighbouring lanes lie on neighbouring banks
      __shared__ float total[Team::kColumns][Team::kTeam];
      for (int warp = 0; warp < Team::kRows; ++warp) {
        if (static_cast<int>(threadIdx.x) / 32 == warp) {
#pragma unroll
          for (int k = 0; k < K; ++k) {
#pragma unroll
            for (int i = 0; i < N; ++i) {
              float& place = total[k * N + i][threadIdx.x % 32];
              place = warp == 0 ? sums[k][i] : place + sums[k][i];
            }
          }
        }
        __syncthreads();
      }
      for (int j = threadIdx.x; j < width; j += Team::kThreads) {
        to[j] = total[j / (32 * N) * N + j % N][j / N % 32];
      }
      __syncthreads();
    }
  };
  write(scale_sums, partial);
  if constexpr (kCentred) write(shift_sums, partial + width);
}

/// Blocks of `kernel` that the current device holds at a time.
template <auto kernel, int kThreads>
int64_t resident_blocks() {
  static const int64_t blocks = [] {
    int device = 0, multiprocessors = 0, each = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, kThreads, 0), "cudaOccupancy…");
    return static_cast<int64_t>(multiprocessors) * std::max(each, 1);
  }();
  return blocks;
}

/// Calls `function` with the tags of type, elements at a time and team.
template <typename Function, typename... Pointers>
void with_norm_kernel(const NormShape& shape, Function&& function, const Pointers*... pointers) {
  with_type(shape.type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto call = [&](auto num) {
      constexpr int kBytes = num() == 1 ? 4 : sizeof(T);
      with_norm_team<kBytes>(shape.width, [&](auto team) { function(tag, num, team); });
    };
    if (shape.width % kWide<T> == 0 && are_aligned(pointers...)) return call(std::integral_constant<int, kWide<T>>{});
    call(std::integral_constant<int, 1>{});
  });
}

template <bool kCentred>
void launch_norm_forward(const NormShape& shape, const void* x, const float* scale, const float* shift, float eps,
                         void* y, float* mean, float* rstd, Stream stream) {
  if (shape.rows == 0 || shape.width == 0) return;
  with_norm_kernel(
      shape,
      [&](auto tag, auto num, auto team) {
        using T = typename decltype(tag)::type;
        using Team = decltype(team);
        constexpr auto kernel = norm_forward<T, num(), Team, kCentred>;
        const int64_t blocks = std::min(ceil_div(shape.rows, Team::kRows), resident_blocks<kernel, Team::kThreads>());
        kernel<<<static_cast<unsigned>(blocks), Team::kThreads, 0, stream>>>(shape.rows, static_cast<int>(shape.width),
                                                                             static_cast<const T*>(x), scale, shift,
                                                                             eps, static_cast<T*>(y), mean, rstd);
        check_launch("norm_forward");
      },
      x, y);
}

template <bool kCentred>
void launch_norm_backward(const NormShape& shape, const void* dy, const void* x, const float* scale, const float* mean,
                          const float* rstd, const void* residual, void* dx, float* d_scale, float* d_shift,
                          void* scratch, Stream stream) {
  if (shape.width == 0) return;
  with_norm_kernel(
      shape,
      [&](auto tag, auto num, auto team) {
        using T = typename decltype(tag)::type;
        using Team = decltype(team);
        const int64_t blocks = Team::backward_blocks(shape.rows);
        constexpr auto kernel = norm_backward<T, num(), Team, kCentred>;
        constexpr size_t shared_bytes = NormScales<num(), Team>::kBytes;
        if constexpr (shared_bytes > 32 << 10) {
          check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
                "cudaFuncSetAttribute");
        }
        kernel<<<static_cast<unsigned>(blocks), Team::kThreads, shared_bytes, stream>>>(
            shape.rows, static_cast<int>(shape.width), static_cast<const T*>(dy), static_cast<const T*>(x), scale, mean,
            rstd, static_cast<const T*>(residual), static_cast<T*>(dx), static_cast<float*>(scratch));
        check_launch("norm_backward");
        sum_partials(static_cast<const float*>(scratch), blocks, shape.width * (kCentred ? 2 : 1), d_scale, shape.width,
                     d_shift, stream);
      },
      dy, x, residual, dx);
}

}  // namespace trireme::gpu
