// Cross entropy: a block takes a row. Greatest logit and sum of exponentials come from one pass; the row waits in
// shared memory until they are known, and goes back to device memory as the gradient.
//
//   |head| vectors of 16 bytes … |tail|      rows may start anywhere: head and tail are less than a vector, and a
//                                            thread each takes their elements
#include <cuda_pipeline_primitives.h>

#include <algorithm>

#include "trireme/gpu/kernels/launch.cuh"
#include "trireme/gpu/kernels/tokens.h"
#include "trireme/gpu/kernels/vector_io.cuh"

namespace trireme::gpu {
namespace {

constexpr int64_t kIgnored = -100;
constexpr float kLog2E = 1.4426950408889634f;
constexpr int kStages = 4;    // pieces of a row that arrive one after another
constexpr int kInFlight = 4;  // loads of a thread where the row is not kept

__device__ inline float power_of_2(float exponent) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(exponent));
  return result;
}

/// e^(value − greatest). In 2-byte types the logits' own rounding hides that of the fused product.
template <typename T>
__device__ inline float power(float value, float greatest) {
  if constexpr (sizeof(T) == 4) {
    return power_of_2((value - greatest) * kLog2E);
  } else {
    return power_of_2(fmaf(value, kLog2E, -(greatest * kLog2E)));
  }
}

/// Σ e^(value − greatest), of the values so far.
template <typename T>
struct Online {
  float greatest = -1e30f;  // finite, so that logits of −∞ (masks) give 0 and not NaN
  float sum = 0;

  template <int N>
  __device__ void add(const float (&values)[N]) {
    float now = greatest;
#pragma unroll
    for (int i = 0; i < N; ++i) now = fmaxf(now, values[i]);
    sum *= power_of_2((greatest - now) * kLog2E);
    greatest = now;
#pragma unroll
    for (int i = 0; i < N; ++i) sum += power<T>(values[i], greatest);
  }
  __device__ void merge(float other_greatest, float other_sum) {
    const float now = fmaxf(greatest, other_greatest);
    sum = sum * power_of_2((greatest - now) * kLog2E) + other_sum * power_of_2((other_greatest - now) * kLog2E);
    greatest = now;
  }
  __device__ void merge_warp() {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
      const float other_greatest = __shfl_xor_sync(0xFFFFFFFFu, greatest, distance);
      const float other_sum = __shfl_xor_sync(0xFFFFFFFFu, sum, distance);
      merge(other_greatest, other_sum);
    }
  }
  /// Over the block; every thread gets the same.
  __device__ void merge_block() {
    __shared__ float2 shared[32];
    merge_warp();
    const unsigned lane = threadIdx.x % 32;
    if (lane == 0) shared[threadIdx.x / 32] = {greatest, sum};
    __syncthreads();
    const bool there = lane < blockDim.x / 32;
    greatest = there ? shared[lane].x : -1e30f;
    sum = there ? shared[lane].y : 0;
    merge_warp();
  }
};

template <typename T>
struct Row {
  static constexpr int N = kWide<T>;
  T* body;      ///< aligned
  int vectors;  ///< of the body
  T* edge;      ///< this thread's element of head or tail, or null

  __device__ Row(T* row, int classes) {
    const auto past = static_cast<int>(reinterpret_cast<uintptr_t>(row) / sizeof(T) % N);
    const int head = min(past == 0 ? 0 : N - past, classes);
    body = row + head;
    vectors = (classes - head) / N;
    const int tail = classes - head - vectors * N, mine = static_cast<int>(threadIdx.x);
    edge = mine < head ? row + mine : mine < head + tail ? body + vectors * N + (mine - head) : nullptr;
  }

  __device__ void fill(float value) {
    float values[N];
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = value;
    Packed<T, N> packed;
    packed.set(values);
    for (int v = threadIdx.x; v < vectors; v += blockDim.x) packed.store(body + int64_t{v} * N);
    if (edge) store_edge(value);
  }
  __device__ float load_edge() const {
    Packed<T, 1> one;
    one.load(edge);
    return one[0];
  }
  __device__ void store_edge(float value) {
    const float values[1] = {value};
    Packed<T, 1> one;
    one.set(values);
    one.store(edge);
  }
};

template <typename T, int N>
__device__ inline void unpack(const Packed<T, N>& packed, float (&values)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) values[i] = packed[i];
}

template <typename T, int N>
__device__ inline void store_gradient(const Packed<T, N>& logits, float greatest, float factor, T* to) {
  float values[N];
#pragma unroll
  for (int i = 0; i < N; ++i) values[i] = power<T>(logits[i], greatest) * factor;
  Packed<T, N> packed;
  packed.set(values);
  packed.store(to);
}

/// kKeep: the row lies in dynamic shared memory between the passes. Each thread reads there only what it copied itself.
template <typename T, bool kKeep>
__global__ void __launch_bounds__(1024)
    cross_entropy_rows(CrossEntropyShape shape, T* logits, const int64_t* __restrict__ targets, float scale,
                       bool write_gradient, float* __restrict__ losses) {
  constexpr int N = kWide<T>;
  extern __shared__ uint4 dynamic[];
  T* const kept = reinterpret_cast<T*>(dynamic);
  T* const start = logits + blockIdx.x * shape.stride;
  const auto classes = static_cast<int>(shape.classes), threads = static_cast<int>(blockDim.x);
  const int64_t target = targets[blockIdx.x];
  Row<T> row(start, classes);
  if (target < 0 || target >= classes) {
    const float value = target == kIgnored ? 0.0f : __int_as_float(0x7FFFFFFF);
    if (threadIdx.x == 0) losses[blockIdx.x] = value;
    if (write_gradient) row.fill(value);
    return;
  }

  Online<T> online;
  const int rounds = (row.vectors + threads - 1) / threads;
  if constexpr (kKeep) {
    const int each = (rounds + kStages - 1) / kStages;
#pragma unroll
    for (int stage = 0; stage < kStages; ++stage) {
      for (int round = stage * each; round < (stage + 1) * each; ++round) {
        const int v = round * threads + threadIdx.x;
        if (v < row.vectors) __pipeline_memcpy_async(kept + v * N, row.body + v * N, 16);
      }
      __pipeline_commit();
    }
  }
  float edge = 0, target_logit = 0;
  if (row.edge) {
    edge = row.load_edge();
    const float values[1] = {edge};
    online.add(values);
  }
  if (threadIdx.x == 0) {  // before anybody writes: there is a barrier in between
    Packed<T, 1> one;
    one.load(start + target);
    target_logit = one[0];
  }
  if constexpr (kKeep) {
    const int each = (rounds + kStages - 1) / kStages;
#pragma unroll
    for (int stage = 0; stage < kStages; ++stage) {
      __pipeline_wait_prior(kStages - 1 - stage);
      for (int round = stage * each; round < (stage + 1) * each; ++round) {
        const int v = round * threads + threadIdx.x;
        if (v >= row.vectors) break;
        Packed<T, N> packed;
        packed.load(kept + v * N);
        float values[N];
        unpack(packed, values);
        online.add(values);
      }
    }
  } else {
    int v = threadIdx.x;
    for (; v + (kInFlight - 1) * threads < row.vectors; v += kInFlight * threads) {
      Packed<T, N> packed[kInFlight];
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) packed[u].load(row.body + int64_t{v + u * threads} * N);
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) {
        float values[N];
        unpack(packed[u], values);
        online.add(values);
      }
    }
    for (; v < row.vectors; v += threads) {
      Packed<T, N> packed;
      packed.load(row.body + int64_t{v} * N);
      float values[N];
      unpack(packed, values);
      online.add(values);
    }
  }
  online.merge_block();
  if (threadIdx.x == 0) losses[blockIdx.x] = logf(online.sum) + (online.greatest - target_logit);
  if (!write_gradient) return;

  const float factor = scale / online.sum;
#pragma unroll 2
  for (int v = threadIdx.x; v < row.vectors; v += threads) {
    Packed<T, N> packed;
    packed.load(kKeep ? kept + v * N : row.body + int64_t{v} * N);
    store_gradient(packed, online.greatest, factor, row.body + int64_t{v} * N);
  }
  if (row.edge) row.store_edge(power<T>(edge, online.greatest) * factor);
  __syncthreads();  // the target's element once more, with its −1
  if (threadIdx.x == 0) {
    const float value[1] = {fmaf(power<T>(target_logit, online.greatest), factor, -scale)};
    Packed<T, 1> one;
    one.set(value);
    one.store(start + target);
  }
}

/// Shared memory of one block, and of all blocks of a multiprocessor.
struct SharedLimits {
  int block = 0, multiprocessor = 0;
};

SharedLimits shared_limits() {
  static const SharedLimits limits = [] {
    SharedLimits found;
    int device = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(cudaDeviceGetAttribute(&found.block, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
          "cudaDeviceGetAttribute");
    check(cudaDeviceGetAttribute(&found.multiprocessor, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device),
          "cudaDeviceGetAttribute");
    return found;
  }();
  return limits;
}

}  // namespace

void cross_entropy(const CrossEntropyShape& shape, void* logits, const int64_t* targets, float scale,
                   bool write_gradient, float* losses, Stream stream) {
  if (shape.rows == 0) return;
  constexpr int kOther = 1024;  // shared memory that a block has besides: the merge's, and the system's
  with_type(shape.type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const int64_t vectors = shape.classes / kWide<T>, row_bytes = vectors * 16;
    const SharedLimits limits = shared_limits();
    int threads = vectors >= 2048 ? 512 : vectors >= 512 ? 256 : 128;
    const auto blocks = static_cast<unsigned>(shape.rows);
    auto* const to = static_cast<T*>(logits);
    if (write_gradient && row_bytes + kOther <= limits.block) {
      constexpr auto kernel = cross_entropy_rows<T, true>;
      if (2 * (row_bytes + kOther) > limits.multiprocessor) threads = 1024;  // no second block would fill its pauses
      check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, limits.block - kOther),
            "cudaFuncSetAttribute");
      check(
          cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared),
          "cudaFuncSetAttribute");
      kernel<<<blocks, threads, static_cast<size_t>(row_bytes), stream>>>(shape, to, targets, scale, write_gradient,
                                                                          losses);
    } else {
      cross_entropy_rows<T, false><<<blocks, threads, 0, stream>>>(shape, to, targets, scale, write_gradient, losses);
    }
  });
  check_launch("cross_entropy_rows");
}

}  // namespace trireme::gpu
