#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/comm/cuda/ordered_sum.h"

namespace trireme::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxPointers = 384;
constexpr int kMaxJobs = 64;
constexpr uint8_t kUnlike = 255;  // pointers that differ modulo 16: no vectors

/// One launch, by value in the kernel's parameters. Job j has the pointers from j * (sources + destinations) on.
struct Table {
  const void* pointers[kMaxPointers];
  uint64_t counts[kMaxJobs];
  uint8_t heads[kMaxJobs];  // elements before the first aligned vector, or kUnlike
  int32_t num_sources, num_destinations;
  int64_t divisor;
};
static_assert(sizeof(Table) <= 4000);

template <typename T>
constexpr bool kIs16Bit = std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>;

__device__ float widen(__half value) { return __half2float(value); }
__device__ float widen(__nv_bfloat16 value) { return __bfloat162float(value); }
template <typename T>
__device__ T narrow(float value) {
  if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(value);
  } else {
    return __float2bfloat16_rn(value);
  }
}

// [Note: Minimum and maximum] of comm/reduce/reduce_lanes.inc: NaN on either side gives NaN, and -0 is less than +0.
__device__ float minimum(float a, float b) {
  return __int_as_float(__float_as_int(a < b ? a : b) | __float_as_int(b < a ? b : a));
}
__device__ double minimum(double a, double b) {
  return __longlong_as_double(__double_as_longlong(a < b ? a : b) | __double_as_longlong(b < a ? b : a));
}

template <ReduceOp op, typename T>
__device__ T apply(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if constexpr (op == ReduceOp::kSum || op == ReduceOp::kAverage) return a + b;
    if constexpr (op == ReduceOp::kProduct) return a * b;
    if constexpr (op == ReduceOp::kMin) return minimum(a, b);
    if constexpr (op == ReduceOp::kMax) return -minimum(-a, -b);
  } else {
    using Wrapping = std::make_unsigned_t<T>;
    if constexpr (op == ReduceOp::kSum || op == ReduceOp::kAverage) return static_cast<T>(Wrapping(a) + Wrapping(b));
    if constexpr (op == ReduceOp::kProduct) return static_cast<T>(Wrapping(a) * Wrapping(b));
    if constexpr (op == ReduceOp::kMin) return a < b ? a : b;
    if constexpr (op == ReduceOp::kMax) return a > b ? a : b;
  }
}

/// One inner node of the tree: the result is rounded to T.
template <ReduceOp op, typename T>
__device__ T node(T a, T b) {
  if constexpr (kIs16Bit<T>) {
    return narrow<T>(apply<op, float>(widen(a), widen(b)));
  } else {
    return apply<op, T>(a, b);
  }
}

/// The division that closes an average. For a power of two a product with the reciprocal has the same bits.
template <ReduceOp op, typename T>
struct Closing {
  using Arithmetic = std::conditional_t<std::is_same_v<T, double>, double, float>;
  bool exact;
  Arithmetic factor;
  int64_t whole;

  __device__ explicit Closing(int64_t divisor)
      : exact((divisor & (divisor - 1)) == 0),
        factor(exact ? Arithmetic(1) / static_cast<Arithmetic>(divisor) : static_cast<Arithmetic>(divisor)),
        whole(divisor) {}

  __device__ Arithmetic divide(Arithmetic sum) const {
    if (exact) return sum * factor;
    if constexpr (std::is_same_v<Arithmetic, double>) {
      return __ddiv_rn(sum, factor);
    } else {
      return __fdiv_rn(sum, factor);
    }
  }
  __device__ T operator()(T sum) const {
    if constexpr (op != ReduceOp::kAverage) {
      return sum;
    } else if constexpr (kIs16Bit<T>) {
      return narrow<T>(divide(widen(sum)));
    } else if constexpr (std::is_floating_point_v<T>) {
      return divide(sum);
    } else {
      return static_cast<T>(static_cast<int64_t>(sum) / whole);
    }
  }
};

template <typename T, int kCount>
struct alignas(kCount * sizeof(T)) Pack {
  T values[kCount];
};

template <ReduceOp op, typename P, typename T, int kCount>
__device__ P node_of(const P& a, const P& b) {
  P result;
#pragma unroll
  for (int i = 0; i < kCount; ++i) result.values[i] = node<op, T>(a.values[i], b.values[i]);
  return result;
}

__host__ __device__ constexpr int left_part(int n) {
  int split = 1;
  while (split * 2 < n) split *= 2;
  return split;
}

template <ReduceOp op, typename P, typename T, int kCount, int n>
__device__ P tree(const P* values) {
  if constexpr (n == 1) {
    return values[0];
  } else {
    constexpr int left = left_part(n);
    return node_of<op, P, T, kCount>(tree<op, P, T, kCount, left>(values),
                                     tree<op, P, T, kCount, n - left>(values + left));
  }
}

/// The tree over any number of sources, read one after another: whole branches are joined as soon as they are complete,
/// as a binary counter carries; what is left at the end is joined from the right.
template <ReduceOp op, typename P, typename T, int kCount>
__device__ P walk(const void* const* sources, int n, uint64_t at) {
  constexpr int kLevels = 7;  // 2^6 sources
  P branches[kLevels];
  for (int i = 0; i < n; ++i) {
    P value = static_cast<const P*>(sources[i])[at];
    bool placed = false;
#pragma unroll
    for (int level = 0; level < kLevels; ++level) {
      if (placed) continue;
      if ((i >> level) & 1) {
        value = node_of<op, P, T, kCount>(branches[level], value);
      } else {
        branches[level] = value;
        placed = true;
      }
    }
  }
  P result;
  bool any = false;
#pragma unroll
  for (int level = 0; level < kLevels; ++level) {
    if (((n >> level) & 1) == 0) continue;
    result = any ? node_of<op, P, T, kCount>(branches[level], result) : branches[level];
    any = true;
  }
  return result;
}

/// Packs [0, num_packs) of `kCount` elements, behind `skip` elements of every pointer. n = 0: any number of sources.
template <ReduceOp op, typename T, int kCount, int n>
__device__ void combine_packs(const Table& table, const void* const* pointers, uint64_t skip, uint64_t num_packs,
                              uint64_t first, uint64_t stride) {
  using P = Pack<T, kCount>;
  constexpr int kInFlight = n == 0   ? 1
                            : n <= 2 ? 4
                            : n <= 4 ? 2
                                     : 1;  // vectors of each source, read before any is used
  const int num_sources = n == 0 ? table.num_sources : n;
  const Closing<op, T> close(table.divisor);
  const auto source = [&](int s) { return reinterpret_cast<const P*>(static_cast<const T*>(pointers[s]) + skip); };
  const auto write = [&](uint64_t at, P value) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) value.values[i] = close(value.values[i]);
    for (int d = 0; d < table.num_destinations; ++d) {
      void* out = const_cast<void*>(pointers[num_sources + d]);
      reinterpret_cast<P*>(static_cast<T*>(out) + skip)[at] = value;
    }
  };
  if constexpr (n == 0) {
    const void* shifted[kMaxSources];
    for (int s = 0; s < num_sources; ++s) shifted[s] = source(s);
    for (uint64_t at = first; at < num_packs; at += stride) {
      write(at, walk<op, P, T, kCount>(shifted, num_sources, at));
    }
  } else {
    uint64_t at = first;
    for (; at + (kInFlight - 1) * stride < num_packs; at += kInFlight * stride) {
      P values[kInFlight][n];
#pragma unroll
      for (int v = 0; v < kInFlight; ++v) {
#pragma unroll
        for (int s = 0; s < n; ++s) values[v][s] = source(s)[at + v * stride];
      }
#pragma unroll
      for (int v = 0; v < kInFlight; ++v) write(at + v * stride, tree<op, P, T, kCount, n>(values[v]));
    }
    for (; at < num_packs; at += stride) {
      P values[n];
#pragma unroll
      for (int s = 0; s < n; ++s) values[s] = source(s)[at];
      write(at, tree<op, P, T, kCount, n>(values));
    }
  }
}

template <ReduceOp op, typename T, int n>
__global__ void __launch_bounds__(kThreads) combine_kernel(const __grid_constant__ Table table) {
  constexpr int kVector = 16 / static_cast<int>(sizeof(T));
  const int job = static_cast<int>(blockIdx.y);
  const void* const* pointers = table.pointers + job * (table.num_sources + table.num_destinations);
  const uint64_t count = table.counts[job];
  const uint64_t thread = static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const uint64_t threads = static_cast<uint64_t>(gridDim.x) * kThreads;
  const uint8_t given = table.heads[job];
  if (given == kUnlike) return combine_packs<op, T, 1, n>(table, pointers, 0, count, thread, threads);
  const uint64_t head = given < count ? given : count;
  const uint64_t vectors = (count - head) / kVector;
  const uint64_t behind = head + vectors * kVector;
  combine_packs<op, T, kVector, n>(table, pointers, head, vectors, thread, threads);
  // The ends are less than two vectors: any warp will do, and the last block has the least to do.
  if (blockIdx.x + 1 != gridDim.x) return;
  combine_packs<op, T, 1, n>(table, pointers, 0, head, threadIdx.x, kThreads);
  combine_packs<op, T, 1, n>(table, pointers, behind, count - behind, threadIdx.x, kThreads);
}

using Kernel = void (*)(Table);
constexpr int kVariants = 4;  // 2, 4, 8 or any number of sources
using Row = std::array<Kernel, kVariants>;

template <ReduceOp op, typename T>
constexpr Row row() {
  return {combine_kernel<op, T, 2>, combine_kernel<op, T, 4>, combine_kernel<op, T, 8>, combine_kernel<op, T, 0>};
}

template <ReduceOp op>
constexpr std::array<Row, 7> rows() {  // in the order of DataType
  return {row<op, float>(),   row<op, double>(),  row<op, __half>(), row<op, __nv_bfloat16>(),
          row<op, int32_t>(), row<op, int64_t>(), row<op, uint8_t>()};
}

const std::array<std::array<Row, 7>, 5>& kernels() {  // in the order of ReduceOp
  static const std::array<std::array<Row, 7>, 5> all = {rows<ReduceOp::kSum>(), rows<ReduceOp::kAverage>(),
                                                        rows<ReduceOp::kMin>(), rows<ReduceOp::kMax>(),
                                                        rows<ReduceOp::kProduct>()};
  return all;
}

// Copies, by the width of what is moved where no vectors can be.
constexpr Kernel kCopies[] = {combine_kernel<ReduceOp::kSum, uint8_t, 1>, combine_kernel<ReduceOp::kSum, __half, 1>,
                              combine_kernel<ReduceOp::kSum, int32_t, 1>, combine_kernel<ReduceOp::kSum, int64_t, 1>};

uintptr_t address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

/// The kernel for a copy moves the widest elements that all addresses and lengths allow; 2^shift bytes.
int copy_shift(std::span<const CombineJob> jobs, size_t width) {
  uintptr_t bits = 8;
  for (const CombineJob& job : jobs) {
    bits |= job.count * width;
    for (const void* source : job.sources) bits |= address(source);
    for (const void* destination : job.destinations) bits |= address(destination);
  }
  return (bits & 1) ? 0 : (bits & 2) ? 1 : (bits & 4) ? 2 : 3;
}

uint8_t head_of(const CombineJob& job, size_t width) {
  const uintptr_t skew = address(job.sources[0]) % 16;
  const auto unlike = [&](const void* pointer) { return address(pointer) % 16 != skew; };
  if (skew % width != 0 || std::any_of(job.sources.begin(), job.sources.end(), unlike) ||
      std::any_of(job.destinations.begin(), job.destinations.end(), unlike))
    return kUnlike;
  return static_cast<uint8_t>((16 - skew) % 16 / width);
}

int num_multiprocessors() {
  int device = 0, count = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
  return count;
}

void launch(Stream stream, Kernel kernel, size_t width, std::span<const CombineJob> jobs, size_t divisor) {
  Table table;
  table.num_sources = static_cast<int32_t>(jobs[0].sources.size());
  table.num_destinations = static_cast<int32_t>(jobs[0].destinations.size());
  table.divisor = static_cast<int64_t>(divisor);
  size_t at = 0, longest = 0;
  for (size_t j = 0; j < jobs.size(); ++j) {
    for (const void* source : jobs[j].sources) table.pointers[at++] = source;
    for (const void* destination : jobs[j].destinations) table.pointers[at++] = destination;
    table.counts[j] = jobs[j].count;
    table.heads[j] = head_of(jobs[j], width);
    longest = std::max(longest, table.heads[j] == kUnlike ? jobs[j].count : (jobs[j].count * width + 15) / 16);
  }
  // Eight blocks fill a multiprocessor; each thread has several vectors to do where there are enough.
  const size_t wanted = (longest + kThreads - 1) / kThreads;
  const size_t most = (static_cast<size_t>(num_multiprocessors()) * 8 + jobs.size() - 1) / jobs.size();
  const dim3 grid(static_cast<unsigned>(std::max<size_t>(std::min(wanted, most), 1)),
                  static_cast<unsigned>(jobs.size()));
  void* arguments[] = {&table};
  check(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, dim3(kThreads), arguments, 0, stream),
        "cudaLaunchKernel of a reduction");
}

}  // namespace

void enqueue_combine(Stream stream, ReduceOp op, DataType type, std::span<const CombineJob> jobs, size_t divisor) {
  if (jobs.empty()) return;
  const size_t sources = jobs[0].sources.size(), destinations = jobs[0].destinations.size();
  if (sources == 0 || sources > kMaxSources || sources + destinations > kMaxPointers)
    throw UsageError("a reduction on a GPU takes 1 to 64 sources", "use a smaller group, or NCCL");
  if (destinations == 0) return;
  size_t width = size_of(type);
  Kernel kernel = nullptr;
  const int shift = sources == 1 ? copy_shift(jobs, width) : 0;
  if (sources == 1) {
    kernel = kCopies[shift];
  } else {
    const int variant = sources == 2 ? 0 : sources == 4 ? 1 : sources == 8 ? 2 : 3;
    kernel = kernels()[static_cast<size_t>(op)][static_cast<size_t>(type)][static_cast<size_t>(variant)];
  }
  const size_t at_once = std::min<size_t>(kMaxPointers / (sources + destinations), kMaxJobs);
  std::array<CombineJob, kMaxJobs> batch;
  size_t filled = 0;
  const auto flush = [&] {
    if (filled > 0) launch(stream, kernel, width, std::span(batch).first(filled), divisor);
    filled = 0;
  };
  if (sources == 1) width = size_t{1} << shift;
  for (const CombineJob& job : jobs) {
    if (job.count == 0) continue;
    batch[filled] = job;
    if (sources == 1) batch[filled].count = job.count * size_of(type) >> shift;
    if (++filled == at_once) flush();
  }
  flush();
}

void load_combine_kernels() {
  cudaFuncAttributes attributes{};
  for (const auto& of_op : kernels()) {
    for (const Row& of_type : of_op) {
      for (const Kernel kernel : of_type)
        check(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel)), "cudaFuncGetAttributes");
    }
  }
  for (const Kernel kernel : kCopies)
    check(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel)), "cudaFuncGetAttributes");
}

}  // namespace trireme::gpu
