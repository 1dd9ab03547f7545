// 8-bit copies of matrices and their transposes, in one pass with what makes the matrix: GELU, its derivative, a norm.
#include <cuda_fp8.h>

#include <string>

#include "trireme/base/error.h"
#include "trireme/gpu/fp8.h"
#include "trireme/gpu/fp8_largest.cuh"
#include "trireme/gpu/kernels/gelu.cuh"
#include "trireme/gpu/kernels/launch.cuh"
#include "trireme/gpu/kernels/reduce.cuh"
#include "trireme/gpu/kernels/vector_io.cuh"

namespace trireme::gpu {
namespace {

constexpr int kTile = 128;  ///< rows and columns of the part of a matrix that a block of threads turns
constexpr int kThreads = kFp8Threads;
constexpr int kSide = 8;  ///< rows and columns of a thread's part
constexpr int kGroups = kTile / kSide;
static_assert(kGroups * kGroups == kThreads);

using Element = __nv_bfloat16;
using Eight = Packed<Element, kSide>;

// Where eight neighbouring elements come from. `Loaded` is read for all rows of a thread before any of it is used,
// `Columns` once a thread.
struct FromMatrix {
  const Element* x;
  int64_t cols;

  struct Columns {};
  using Loaded = Eight;
  __device__ Columns columns(int64_t) const { return {}; }
  __device__ Loaded load(int64_t row, int64_t col) const {
    Eight loaded;
    loaded.load(x + row * cols + col);
    return loaded;
  }
  __device__ Eight value(const Columns&, const Loaded& loaded) const { return loaded; }
};

struct FromGelu : FromMatrix {
  __device__ Eight value(const Columns&, const Loaded& loaded) const {
    float values[kSide];
#pragma unroll
    for (int i = 0; i < kSide; ++i) values[i] = gelu_of<Element>(loaded[i]);
    Eight result;
    result.set(values);
    return result;
  }
};

struct FromGeluGradient {
  const Element* dy;
  const Element* before;
  int64_t cols;

  struct Columns {};
  struct Loaded {
    Eight dy, before;
  };
  __device__ Columns columns(int64_t) const { return {}; }
  __device__ Loaded load(int64_t row, int64_t col) const {
    Loaded loaded;
    loaded.dy.load(dy + row * cols + col);
    loaded.before.load(before + row * cols + col);
    return loaded;
  }
  __device__ Eight value(const Columns&, const Loaded& loaded) const {
    float values[kSide];
#pragma unroll
    for (int i = 0; i < kSide; ++i) values[i] = gelu_gradient_of<Element>(loaded.before[i], loaded.dy[i]);
    Eight result;
    result.set(values);
    return result;
  }
};

struct FromLayerNorm {
  const Element* x;
  int64_t cols;
  Fp8Norm norm;

  struct Columns {
    float weight[kSide], shift[kSide];
  };
  struct Loaded {
    Eight x;
    float mean, rstd;
  };
  __device__ Columns columns(int64_t col) const {
    Columns columns;
#pragma unroll
    for (int i = 0; i < kSide; ++i) columns.weight[i] = norm.weight[col + i], columns.shift[i] = norm.shift[col + i];
    return columns;
  }
  __device__ Loaded load(int64_t row, int64_t col) const {
    Loaded loaded;
    loaded.x.load(x + row * cols + col);
    loaded.mean = norm.mean[row];
    loaded.rstd = norm.rstd[row];
    return loaded;
  }
  __device__ Eight value(const Columns& columns, const Loaded& loaded) const {
    float values[kSide];
#pragma unroll
    for (int i = 0; i < kSide; ++i) {
      values[i] = fmaf((loaded.x[i] - loaded.mean) * loaded.rstd, columns.weight[i], columns.shift[i]);
    }
    Eight result;
    result.set(values);
    return result;
  }
};

/// x · scale in 8 bits for a pair of bfloat16. x · 0 is 0, or NaN where x is not finite: the conversion alone would
/// make the largest value of an infinity, and nobody would ever see it.
template <__nv_fp8_interpretation_t kType>
__device__ uint32_t to_fp8(uint32_t pair, float scale) {
  const float low = __uint_as_float(pair << 16), high = __uint_as_float(pair & 0xFFFF0000u);
  const float2 scaled = {__fmaf_rn(low, scale, low * 0.0f), __fmaf_rn(high, scale, high * 0.0f)};
  return __nv_cvt_float2_to_fp8x2(scaled, __NV_SATFINITE, kType);
}

/// Bytes of four rows of four become those of four columns.
__device__ void turn(uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d) {
  const uint32_t ab_low = __byte_perm(a, b, 0x5140), ab_high = __byte_perm(a, b, 0x7362);  // a0 b0 a1 b1, a2 b2 a3 b3
  const uint32_t cd_low = __byte_perm(c, d, 0x5140), cd_high = __byte_perm(c, d, 0x7362);
  a = __byte_perm(ab_low, cd_low, 0x5410);
  b = __byte_perm(ab_low, cd_low, 0x7632);
  c = __byte_perm(ab_high, cd_high, 0x5410);
  d = __byte_perm(ab_high, cd_high, 0x7632);
}

/// Sums over the rows of a tile. Each thread leaves its columns' sums, then 128 threads add those of the row groups in
/// order. The place of column 8 g + j is 16 j + g: neighbouring column groups meet different banks.
template <bool kWanted>
struct TileSums {
  float own[kSide] = {};
  __device__ void add(const Eight& values) {
#pragma unroll
    for (int j = 0; j < kSide; ++j) own[j] += values[j];
  }
  __device__ void leave(float (*shared)[kTile], int row_group, int col_group) const {
#pragma unroll
    for (int j = 0; j < kSide; ++j) shared[row_group][j * kGroups + col_group] = own[j];
  }
  /// After a barrier. `partial` is the tile's row of sums.
  __device__ static void write(const float (*shared)[kTile], float* partial, int64_t first_col, int64_t cols) {
    const auto place = static_cast<int>(threadIdx.x);
    const int64_t col = first_col + place % kGroups * kSide + place / kGroups;
    if (place >= kTile || col >= cols) return;
    float sum = 0;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) sum += shared[group][place];
    partial[col] = sum;
  }
};

template <>
struct TileSums<false> {
  __device__ void add(const Eight&) {}
  __device__ void leave(float (*)[kTile], int, int) const {}
  __device__ static void write(const float (*)[kTile], float*, int64_t, int64_t) {}
};

/// A thread has 8 rows of 8 elements. It writes them as they are, turns them in registers, and leaves 8 columns of 8 in
/// shared memory, from where whole lines of the transpose are written. There, line `column` has 16 places of 8 bytes,
/// and the place of row group g is g ^ (column group): 16 threads with neighbouring column groups meet different banks.
template <__nv_fp8_interpretation_t kType, typename Source, bool kSums>
__global__ void __launch_bounds__(kThreads)
    quantise_kernel(const Source source, int64_t rows, int64_t cols, uint32_t tiles_across, Fp8Scale* state,
                    uint8_t* __restrict__ out, uint8_t* __restrict__ transposed, float* __restrict__ partials) {
  __shared__ __align__(16) uint2 lines[kTile][kGroups];
  __shared__ float shared_sums[kSums ? kGroups : 1][kTile];
  const int64_t tile_row = blockIdx.x / tiles_across;
  const int64_t first_row = tile_row * kTile;
  const int64_t first_col = int64_t{blockIdx.x % tiles_across} * kTile;
  const auto thread = static_cast<int>(threadIdx.x);
  const int col_group = thread % kGroups, row_group = thread / kGroups;
  const int64_t row = first_row + row_group * kSide, col = first_col + col_group * kSide;
  const float scale = state->scale;
  uint32_t pairs = 0;
  TileSums<kSums> sums;
  if (row < rows && col < cols) {  // both are multiples of 16: a thread's part is inside or outside as a whole
    const typename Source::Columns columns = source.columns(col);
    typename Source::Loaded loaded[kSide];
#pragma unroll
    for (int i = 0; i < kSide; ++i) loaded[i] = source.load(row + i, col);
    uint32_t left[kSide], right[kSide];
#pragma unroll
    for (int i = 0; i < kSide; ++i) {
      const Eight v = source.value(columns, loaded[i]);
#pragma unroll
      for (const uint32_t pair : v.words) pairs = larger_of_pairs(pairs, pair);
      sums.add(v);
      left[i] = to_fp8<kType>(v.words[0], scale) | to_fp8<kType>(v.words[1], scale) << 16;
      right[i] = to_fp8<kType>(v.words[2], scale) | to_fp8<kType>(v.words[3], scale) << 16;
      if (out) *reinterpret_cast<uint2*>(out + (row + i) * cols + col) = make_uint2(left[i], right[i]);
    }
    turn(left[0], left[1], left[2], left[3]);
    turn(left[4], left[5], left[6], left[7]);
    turn(right[0], right[1], right[2], right[3]);
    turn(right[4], right[5], right[6], right[7]);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      lines[col_group * kSide + j][row_group ^ col_group] = make_uint2(left[j], left[j + 4]);
      lines[col_group * kSide + j + 4][row_group ^ col_group] = make_uint2(right[j], right[j + 4]);
    }
  }
  sums.leave(shared_sums, row_group, col_group);
  note_largest(pairs, state);  // has a barrier
  TileSums<kSums>::write(shared_sums, partials + tile_row * cols, first_col, cols);
  if (!transposed) return;
#pragma unroll
  for (int i = thread; i < kTile * kTile / 16; i += kThreads) {
    const int line = i / 8, place = i % 8, group = line / kSide;
    const int64_t to_row = first_col + line, to_col = first_row + place * 16;
    if (to_row >= cols || to_col >= rows) continue;
    const uint4 two = *reinterpret_cast<const uint4*>(&lines[line][2 * (place ^ group / 2)]);
    *reinterpret_cast<uint4*>(transposed + to_row * rows + to_col) =
        group % 2 ? make_uint4(two.z, two.w, two.x, two.y) : two;
  }
}

void check_size(const char* what, int64_t size) {
  if (size >= 0 && size % kFp8Multiple == 0) return;
  throw UsageError("a matrix of " + std::to_string(size) + " " + what + " cannot be used in 8 bits",
                   "sizes must be multiples of 16: use bfloat16 for this one");
}

void check_address(const char* what, const void* pointer) {
  if (reinterpret_cast<uintptr_t>(pointer) % kFp8Multiple == 0) return;
  throw UsageError(std::string(what) + " of a matrix in 8 bits does not start at a multiple of 16 bytes");
}

template <__nv_fp8_interpretation_t kType, bool kSums = false, typename Source>
void launch(const Source& source, const void* x, int64_t rows, int64_t cols, Fp8Scale* scale, void* out,
            void* transposed, Stream stream, float* partials = nullptr) {
  check_size("rows", rows);
  check_size("columns", cols);
  check_address("the source", x);
  check_address("the memory", out);
  check_address("the memory of the transpose", transposed);
  if (rows == 0 || cols == 0) return;
  const auto tiles_across = static_cast<uint32_t>(ceil_div(cols, kTile));
  const auto grid = static_cast<unsigned>(ceil_div(rows, kTile) * tiles_across);
  quantise_kernel<kType, Source, kSums><<<grid, kThreads, 0, stream>>>(
      source, rows, cols, tiles_across, scale, static_cast<uint8_t*>(out), static_cast<uint8_t*>(transposed), partials);
  check_launch("quantise");
}

const Element* elements(const void* x) { return static_cast<const Element*>(x); }

}  // namespace

void quantise(const void* x, int64_t rows, int64_t cols, Fp8 type, Fp8Scale* scale, void* out, void* transposed,
              Stream stream) {
  const FromMatrix source{elements(x), cols};
  if (type == Fp8::kE4M3) {
    launch<__NV_E4M3>(source, x, rows, cols, scale, out, transposed, stream);
  } else {
    launch<__NV_E5M2>(source, x, rows, cols, scale, out, transposed, stream);
  }
}

void quantise_gelu(const void* x, int64_t rows, int64_t cols, Fp8Scale* scale, void* out, void* transposed,
                   Stream stream) {
  launch<__NV_E4M3>(FromGelu{{elements(x), cols}}, x, rows, cols, scale, out, transposed, stream);
}

void quantise_layer_norm(const void* x, const Fp8Norm& norm, int64_t rows, int64_t cols, Fp8Scale* scale, void* out,
                         void* transposed, Stream stream) {
  launch<__NV_E4M3>(FromLayerNorm{elements(x), cols, norm}, x, rows, cols, scale, out, transposed, stream);
}

size_t quantise_gradient_scratch(int64_t rows, int64_t cols) {
  return static_cast<size_t>(ceil_div(rows, kTile) * cols) * sizeof(float);
}

void quantise_gradient(const void* dy, const void* before_gelu, int64_t rows, int64_t cols, Fp8Scale* scale, void* out,
                       void* transposed, float* sums, void* scratch, Stream stream) {
  check_address("what went into GELU", before_gelu);
  auto* partials = static_cast<float*>(scratch);
  const auto run = [&](const auto& source) {
    if (sums) {
      launch<__NV_E5M2, true>(source, dy, rows, cols, scale, out, transposed, stream, partials);
    } else {
      launch<__NV_E5M2>(source, dy, rows, cols, scale, out, transposed, stream);
    }
  };
  if (before_gelu) {
    run(FromGeluGradient{elements(dy), elements(before_gelu), cols});
  } else {
    run(FromMatrix{elements(dy), cols});
  }
  if (sums && cols > 0) sum_partials(partials, ceil_div(rows, kTile), cols, sums, cols, nullptr, stream);
}

}  // namespace trireme::gpu
