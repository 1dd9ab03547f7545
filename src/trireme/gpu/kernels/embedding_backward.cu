// The gradients of embeddings, summed in a fixed order: rows are sorted by their token, cut into chunks of equal
// length, and each chunk sums its runs of equal tokens. A run that lies in one chunk is done then; one that crosses
// into others leaves a partial sum in each, and these are added in order:
//
//   sorted tokens   4 4 4 7 | 7 7 7 7 | 7 9 9 9        chunks of 4 (here)
//   partial sums          t     h       h              the run of 7: its start is chunk 0's tail, the rest are heads
#include <bit>
#include <cub/device/device_radix_sort.cuh>

#include "trireme/gpu/kernels/launch.cuh"
#include "trireme/gpu/kernels/tokens.h"
#include "trireme/gpu/kernels/vector_io.cuh"

namespace trireme::gpu {
namespace {

constexpr int kChunk = 64;
constexpr int kInFlight = 8;
constexpr int kMostThreads = 128;

/// Parts of the scratch memory.
struct Scratch {
  uint32_t *tokens, *sorted;
  int32_t *rows, *order;
  float* partials;  ///< [chunks, head and tail, width]
  void* sort;
  size_t sort_bytes, total_bytes;
};

/// Tokens outside the vocabulary become the number `vocab`, which sorts behind all others and is not summed.
int num_bits(const EmbeddingShape& shape) { return std::bit_width(static_cast<uint64_t>(shape.vocab)); }

Scratch divide(const EmbeddingShape& shape, void* memory) {
  Scratch s{};
  const auto rows = static_cast<size_t>(shape.rows);
  check(cub::DeviceRadixSort::SortPairs(nullptr, s.sort_bytes, s.tokens, s.sorted, s.rows, s.order,
                                        static_cast<int>(shape.rows), 0, num_bits(shape)),
        "cub::DeviceRadixSort");
  size_t used = 0;
  const auto take = [&](size_t bytes) {
    char* const part = static_cast<char*>(memory) + used;
    used += (bytes + 255) / 256 * 256;
    return part;
  };
  s.tokens = reinterpret_cast<uint32_t*>(take(rows * 4));
  s.sorted = reinterpret_cast<uint32_t*>(take(rows * 4));
  s.rows = reinterpret_cast<int32_t*>(take(rows * 4));
  s.order = reinterpret_cast<int32_t*>(take(rows * 4));
  s.partials = reinterpret_cast<float*>(
      take(static_cast<size_t>(ceil_div(shape.rows, kChunk) * 2 * shape.width) * sizeof(float)));
  s.sort = take(s.sort_bytes);
  s.total_bytes = used;
  return s;
}

__global__ void __launch_bounds__(256)
    number_rows(const int64_t* __restrict__ tokens, int64_t rows, int64_t vocab, uint32_t* keys, int32_t* numbers) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (i >= rows) return;
  const int64_t token = tokens[i];
  keys[i] = static_cast<uint32_t>(token >= 0 && token < vocab ? token : vocab);
  numbers[i] = static_cast<int32_t>(i);
}

template <typename T, int N>
__device__ inline void store_sums(const float (&sums)[N], T* to) {
  Packed<T, N> packed;
  packed.set(sums);
  packed.store(to);
}

/// Of partial sums: floats, four at a time where N is wide.
template <int N>
struct Floats {
  static constexpr int V = N < 4 ? N : 4;
  Packed<float, V> parts[N / V];

  __device__ void load(const float* from) {
#pragma unroll
    for (int part = 0; part < N / V; ++part) parts[part].load(from + part * V);
  }
  __device__ float operator[](int i) const { return parts[i / V][i % V]; }
};

/// A block: one chunk (x) and a slab of columns (y), N columns a thread.
template <typename T, int N>
__global__ void __launch_bounds__(kMostThreads)
    sum_chunk(EmbeddingShape shape, const uint32_t* __restrict__ sorted, const int32_t* __restrict__ order,
              const T* __restrict__ dy, float* __restrict__ partials, T* __restrict__ d_table) {
  __shared__ uint32_t tokens[kChunk + 2];  // with the token before and the token after
  __shared__ int32_t rows[kChunk];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kChunk;
  const int count = static_cast<int>(min(static_cast<int64_t>(kChunk), shape.rows - first));
  const auto nobody = static_cast<uint32_t>(shape.vocab);
  for (int i = threadIdx.x; i < count + 2; i += blockDim.x) {
    const int64_t at = first + i - 1;
    tokens[i] = at >= 0 && at < shape.rows ? sorted[at] : nobody;
  }
  for (int i = threadIdx.x; i < count; i += blockDim.x) rows[i] = order[first + i];
  __syncthreads();
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N;
  if (column >= shape.width) return;

  float sums[N] = {};
  bool begins = tokens[1] != tokens[0];  // whether this run's first row is in this chunk
  const auto add = [&](const Packed<T, N>& gradient, int i) {
#pragma unroll
    for (int j = 0; j < N; ++j) sums[j] += gradient[j];
    const uint32_t token = tokens[i + 1];
    const bool ends = tokens[i + 2] != token;
    if (!ends && i + 1 < count) return;
    if (token != nobody) {
      if (begins && ends) {
        store_sums(sums, d_table + token * shape.width + column);
      } else {
        float* const to = partials + (static_cast<int64_t>(blockIdx.x) * 2 + begins) * shape.width + column;
        constexpr int V = Floats<N>::V;
#pragma unroll
        for (int j = 0; j < N; j += V) {
          Packed<float, V> packed;
          packed.set(reinterpret_cast<const float(&)[V]>(sums[j]));
          packed.store(to + j);
        }
      }
    }
#pragma unroll
    for (int j = 0; j < N; ++j) sums[j] = 0;
    begins = true;
  };
  int i = 0;
  for (; i + kInFlight <= count; i += kInFlight) {
    Packed<T, N> loaded[kInFlight];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) loaded[u].load(dy + rows[i + u] * shape.width + column);
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) add(loaded[u], i + u);
  }
  for (; i < count; ++i) {
    Packed<T, N> loaded;
    loaded.load(dy + rows[i] * shape.width + column);
    add(loaded, i);
  }
}

/// Where a run begins in chunk x and crosses its end: the sum of its partial sums.
template <typename T, int N>
__global__ void __launch_bounds__(kMostThreads)
    join_chunks(EmbeddingShape shape, const uint32_t* __restrict__ sorted, const float* __restrict__ partials,
                T* __restrict__ d_table) {
  const int64_t chunk = blockIdx.x, first = chunk * kChunk, end = first + kChunk;
  if (end >= shape.rows) return;
  const uint32_t token = sorted[end - 1];
  if (sorted[end] != token || token == shape.vocab) return;
  if (sorted[first] == token && first > 0 && sorted[first - 1] == token) return;  // it began before
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N;
  if (column >= shape.width) return;

  int64_t inside = end, outside = shape.rows;  // the run's last row is at `inside` or behind it, and before `outside`
  while (outside - inside > 1) {
    const int64_t middle = inside + (outside - inside) / 2;
    (sorted[middle] == token ? inside : outside) = middle;
  }
  const int64_t last_chunk = inside / kChunk;
  const float* const heads = partials + column;
  Floats<N> tail;
  tail.load(heads + (chunk * 2 + 1) * shape.width);
  float sums[N];
#pragma unroll
  for (int j = 0; j < N; ++j) sums[j] = tail[j];
  int64_t next = chunk + 1;
  const auto add = [&]<int count>(std::integral_constant<int, count>) {
    Floats<N> loaded[count];
#pragma unroll
    for (int u = 0; u < count; ++u) loaded[u].load(heads + (next + u) * 2 * shape.width);
#pragma unroll
    for (int u = 0; u < count; ++u) {
#pragma unroll
      for (int j = 0; j < N; ++j) sums[j] += loaded[u][j];
    }
    next += count;
  };
  while (next + kInFlight - 1 <= last_chunk) add(std::integral_constant<int, kInFlight>{});
  while (next <= last_chunk) add(std::integral_constant<int, 1>{});
  store_sums(sums, d_table + token * shape.width + column);
}

/// A thread: N columns of one position, sample after sample.
template <typename T, int N>
__global__ void __launch_bounds__(kMostThreads)
    sum_positions(EmbeddingShape shape, const T* __restrict__ dy, T* __restrict__ d_positions) {
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N;
  if (column >= shape.width) return;
  float sums[N] = {};
  int64_t row = blockIdx.x;
  const auto add = [&]<int count>(std::integral_constant<int, count>) {
    Packed<T, N> loaded[count];
#pragma unroll
    for (int u = 0; u < count; ++u) loaded[u].load(dy + (row + u * shape.seq) * shape.width + column);
#pragma unroll
    for (int u = 0; u < count; ++u) {
#pragma unroll
      for (int j = 0; j < N; ++j) sums[j] += loaded[u][j];
    }
    row += count * shape.seq;
  };
  while (row + (kInFlight - 1) * shape.seq < shape.rows) add(std::integral_constant<int, kInFlight>{});
  while (row < shape.rows) add(std::integral_constant<int, 1>{});
  store_sums(sums, d_positions + blockIdx.x * shape.width + column);
}

}  // namespace

size_t embedding_backward_scratch(const EmbeddingShape& shape) { return divide(shape, nullptr).total_bytes; }

void embedding_backward(const EmbeddingShape& shape, const int64_t* tokens, const void* dy, void* d_table,
                        void* d_positions, void* scratch, Stream stream) {
  if (shape.width == 0) return;
  check(cudaMemsetAsync(d_table, 0, static_cast<size_t>(shape.vocab * shape.width) * size_of(shape.type), stream),
        "cudaMemsetAsync");
  Scratch parts{};
  if (shape.rows > 0) {
    parts = divide(shape, scratch);
    number_rows<<<static_cast<unsigned>(ceil_div(shape.rows, 256)), 256, 0, stream>>>(tokens, shape.rows, shape.vocab,
                                                                                      parts.tokens, parts.rows);
    check_launch("number_rows");
    check(cub::DeviceRadixSort::SortPairs(parts.sort, parts.sort_bytes, parts.tokens, parts.sorted, parts.rows,
                                          parts.order, static_cast<int>(shape.rows), 0, num_bits(shape), stream),
          "cub::DeviceRadixSort");
  }
  with_type(shape.type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto* const gradient = static_cast<const T*>(dy);
    auto* const table = static_cast<T*>(d_table);
    const auto start = [&]<int N>(std::integral_constant<int, N>) {
      const int64_t vectors = shape.width / N;
      const auto threads = static_cast<unsigned>(std::min<int64_t>(ceil_div(vectors, 32) * 32, kMostThreads));
      const auto slabs = static_cast<unsigned>(ceil_div(vectors, threads));
      if (shape.rows > 0) {
        const dim3 grid(static_cast<unsigned>(ceil_div(shape.rows, kChunk)), slabs);
        sum_chunk<T, N>
            <<<grid, threads, 0, stream>>>(shape, parts.sorted, parts.order, gradient, parts.partials, table);
        check_launch("sum_chunk");
        join_chunks<T, N><<<grid, threads, 0, stream>>>(shape, parts.sorted, parts.partials, table);
        check_launch("join_chunks");
      }
      if (d_positions && shape.seq > 0) {
        const dim3 grid(static_cast<unsigned>(shape.seq), slabs);
        sum_positions<T, N><<<grid, threads, 0, stream>>>(shape, gradient, static_cast<T*>(d_positions));
        check_launch("sum_positions");
      }
    };
    if (shape.width % kWide<T> == 0 && are_aligned(dy, d_table, d_positions)) {
      start(std::integral_constant<int, kWide<T>>{});
    } else {
      start(std::integral_constant<int, 1>{});
    }
  });
}

}  // namespace trireme::gpu
