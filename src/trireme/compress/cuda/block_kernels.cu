// One group of 128 threads codes one block of 512 elements; thread t has the elements t, t + 128, t + 256, t + 384.
#define TRIREME_LANE __device__ __forceinline__ static

#include "trireme/base/error.h"
#include "trireme/compress/cuda/block_kernels.h"
#include "trireme/compress/formats/block_codes.inc"
#include "trireme/gpu/kernels/launch.cuh"
#include "trireme/gpu/kernels/philox.cuh"

namespace trireme::gpu {
namespace {

using namespace compress_kernels;

constexpr int kThreads = 128;
constexpr int kOwn = static_cast<int>(kBlockElements) / kThreads;
constexpr int kBlock = static_cast<int>(kBlockElements);

/// Where the blocks of an array lie on the wire: [Note: Packed blocks].
struct Wire {
  size_t scale_bytes, payload_bytes;  ///< of all blocks, and of one whole block
};

/// The largest of all threads' values, for all of them.
__device__ uint32_t largest_of_all(uint32_t value) {
  __shared__ uint32_t of_warps[kThreads / 32];
  value = __reduce_max_sync(0xffffffffu, value);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  uint32_t largest = 0;
  for (const uint32_t each : of_warps) largest = max(largest, each);
  return largest;
}

/// Σ |x| of a block, in the order of the host: 16 lanes that meet in a tree.
__device__ float sum_of_magnitudes(const float (&own)[kOwn]) {
  __shared__ float magnitudes[kBlock];
  __shared__ float sum;
  for (int i = 0; i < kOwn; ++i) magnitudes[threadIdx.x + i * kThreads] = fabsf(own[i]);
  __syncthreads();
  if (threadIdx.x < 16) {
    float lane = 0;
    for (int i = 0; i < kBlock; i += 16) lane += magnitudes[i + threadIdx.x];
    for (int half = 8; half > 0; half /= 2) lane += __shfl_down_sync(0xffffu, lane, half, 16);
    if (threadIdx.x == 0) sum = lane;
  }
  __syncthreads();
  return sum;
}

__device__ void store_bytes(uint8_t* to, const void* from, int num_bytes) {
  for (int i = 0; i < num_bytes; ++i) to[i] = static_cast<const uint8_t*>(from)[i];
}

// How a format codes the elements of a block: find() learns of the block and returns its scale, code() codes an
// element, value() is the other way round.

/// Whole numbers, with random numbers or to nearest.
template <typename C_, bool kRandom>
struct Levels {
  using C = C_;
  static constexpr bool kPacks = true;
  float inverse = 0;
  uint4 words{};
  bool has_codes = true;

  __device__ float find(const float (&own)[kOwn], int, const RandomKey& random, uint64_t block) {
    uint32_t largest = 0;
    for (const float value : own) largest = max(largest, magnitude(value));
    largest = largest_of_all(largest);
    has_codes = largest < kInfinity && largest >= kTiny;
    if (has_codes) inverse = C::kMiddle / __uint_as_float(largest);
    if (kRandom) {
      words = philox4x32(philox_counter(block * 64 + threadIdx.x % 64, random.high[0], random.high[1]),
                         {random.key[0], random.key[1]});
    }
    return step_of<C>(largest);
  }
  __device__ uint8_t code(float value, int i) const {
    if (!has_codes) return static_cast<uint8_t>(C::kMiddle);
    if constexpr (!kRandom) return nearest_code<C>(value, inverse);
    const uint32_t word = i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
    return stochastic_code<C>(value, inverse, chance_of(threadIdx.x < 64 ? word : word >> 16));
  }
  /// What stands after the elements of a block that is not whole.
  __device__ uint8_t padding() const { return has_codes ? 0 : static_cast<uint8_t>(C::kMiddle); }
  __device__ static float value(uint8_t code, float scale) { return value_of<C>(code, scale); }
};

struct Signs {
  using C = Coding1;
  static constexpr bool kPacks = true;
  __device__ float find(const float (&own)[kOwn], int count, const RandomKey&, uint64_t) {
    return sign_scale(sum_of_magnitudes(own) / static_cast<float>(count));
  }
  __device__ uint8_t code(float value, int) const { return sign_code(value); }
  __device__ uint8_t padding() const { return 0; }
  __device__ static float value(uint8_t code, float scale) { return value_of<C>(code, scale); }
};

/// float16 under a power of two.
struct Halves {
  using Code = HalfCode::Code;
  static constexpr bool kPacks = false;
  float inverse = 0;

  __device__ float find(const float (&own)[kOwn], int, const RandomKey&, uint64_t) {
    uint32_t largest = 0;
    for (const float value : own) largest = max(largest, magnitude(value));
    largest = largest_of_all(largest);
    if (largest >= kInfinity || largest < kTiny) return largest < kTiny ? 0 : quiet_nan();
    const uint32_t power = power_of(largest);
    inverse = __uint_as_float((254 - power) << 23);
    return __uint_as_float(power << 23);
  }
  __device__ Code code(float value, int) const { return inverse == 0 ? Code(0) : HalfCode::encode(value * inverse); }
  __device__ static float value(Code code, float scale) { return HalfCode::decode(code) * scale; }
};

struct BFloats {
  using Code = uint16_t;
  static constexpr bool kPacks = false;
  __device__ float find(const float (&)[kOwn], int, const RandomKey&, uint64_t) { return 0; }
  __device__ Code code(float value, int) const { return kernels::bfloat16_of(value).bits; }
  __device__ static float value(Code code, float) { return kernels::float_of(BFloat16{code}); }
};

template <typename C>
__device__ void pack(const uint8_t* codes, int count, uint8_t* payload) {
  const int plane = (count + C::kPerByte - 1) / C::kPerByte;
  for (int j = threadIdx.x; j < plane; j += kThreads) {
    unsigned byte = 0;
    for (int k = C::kPerByte - 1; k >= 0; --k) byte = byte * C::kRadix + codes[k * plane + j];
    payload[j] = static_cast<uint8_t>(byte);
  }
}

template <typename C>
__device__ uint8_t unpacked(const uint8_t* payload, int count, int element) {
  const int plane = (count + C::kPerByte - 1) / C::kPerByte;
  unsigned byte = payload[element % plane];
  for (int k = element / plane; k > 0; --k) byte /= C::kRadix;
  return static_cast<uint8_t>(byte % C::kRadix);
}

template <typename Format>
__global__ void __launch_bounds__(kThreads) encode(float* values, size_t count, uint8_t* out, Wire wire,
                                                   RandomKey random, uint64_t first_block, bool keep_rest) {
  const size_t block = blockIdx.x, begin = block * kBlockElements;
  const int n = static_cast<int>(min(kBlockElements, count - begin));
  float own[kOwn];
  for (int i = 0; i < kOwn; ++i) {
    const int e = static_cast<int>(threadIdx.x) + i * kThreads;
    own[i] = e < n ? values[begin + e] : 0.f;
  }
  Format format;
  const float scale = format.find(own, n, random, first_block + block);
  if (threadIdx.x == 0 && wire.scale_bytes > 0) store_bytes(out + block * 4, &scale, 4);
  uint8_t* const payload = out + wire.scale_bytes + block * wire.payload_bytes;
  __shared__ uint8_t codes[kBlock + 8];  // 8: the last plane may end behind the block
  if constexpr (Format::kPacks) {
    if (threadIdx.x < 8) codes[kBlock + threadIdx.x] = format.padding();
  }
  for (int i = 0; i < kOwn; ++i) {
    const int e = static_cast<int>(threadIdx.x) + i * kThreads;
    const auto code = format.code(own[i], i);
    if constexpr (Format::kPacks) {
      codes[e] = e < n ? code : format.padding();
    } else if (e < n) {
      store_bytes(payload + e * sizeof code, &code, sizeof code);
    }
    if (keep_rest && e < n) values[begin + e] = rest_of(own[i], Format::value(code, scale));
  }
  if constexpr (Format::kPacks) {
    __syncthreads();
    pack<typename Format::C>(codes, n, payload);
  }
}

template <typename Format>
__global__ void __launch_bounds__(kThreads) decode(const uint8_t* in, size_t count, float* out, Wire wire, bool add) {
  const size_t block = blockIdx.x, begin = block * kBlockElements;
  const int n = static_cast<int>(min(kBlockElements, count - begin));
  float scale = 0;
  if (wire.scale_bytes > 0) store_bytes(reinterpret_cast<uint8_t*>(&scale), in + block * 4, 4);
  const uint8_t* const payload = in + wire.scale_bytes + block * wire.payload_bytes;
  for (int e = threadIdx.x; e < n; e += kThreads) {
    float value;
    if constexpr (Format::kPacks) {
      value = Format::value(unpacked<typename Format::C>(payload, n, e), scale);
    } else {
      typename Format::Code code;
      store_bytes(reinterpret_cast<uint8_t*>(&code), payload + e * sizeof code, sizeof code);
      value = Format::value(code, scale);
    }
    out[begin + e] = add ? out[begin + e] + value : value;
  }
}

/// Calls `function` with the tag of the format's struct.
template <typename Function>
void with_format(BlockFormat format, Function&& function) {
  switch (format) {
    case BlockFormat::kInt8:
      return function(TypeTag<Levels<Coding8, false>>{});
    case BlockFormat::kQsgd8:
      return function(TypeTag<Levels<Coding8, true>>{});
    case BlockFormat::kQsgd4:
      return function(TypeTag<Levels<Coding4, true>>{});
    case BlockFormat::kQsgd2:
      return function(TypeTag<Levels<Coding2, true>>{});
    case BlockFormat::kQsgd1:
      return function(TypeTag<Levels<Coding1, true>>{});
    case BlockFormat::kTernary:
      return function(TypeTag<Levels<Coding3, true>>{});
    case BlockFormat::kSign:
      return function(TypeTag<Signs>{});
    case BlockFormat::kHalf:
      return function(TypeTag<Halves>{});
    case BlockFormat::kBFloat16:
      return function(TypeTag<BFloats>{});
  }
  throw Error("a packed format without kernels on GPUs");
}

Wire wire_of(BlockFormat format, size_t count) {
  const size_t scale = has_scale(format) ? 4 : 0;
  const size_t blocks = (count + kBlockElements - 1) / kBlockElements;
  return {scale * blocks, trireme::encoded_bytes(format, kBlockElements) - scale};
}

unsigned grid_of(size_t count) { return static_cast<unsigned>((count + kBlockElements - 1) / kBlockElements); }

}  // namespace

void encode_blocks(BlockFormat format, float* values, size_t count, uint8_t* out, const RandomKey& random,
                   uint64_t first, bool keep_rest, Stream stream) {
  if (count == 0) return;
  with_format(format, [&](auto tag) {
    using Format = typename decltype(tag)::type;
    encode<Format><<<grid_of(count), kThreads, 0, stream>>>(values, count, out, wire_of(format, count), random,
                                                            first / kBlockElements, keep_rest);
  });
  check_launch("encode_blocks");
}

void decode_blocks(BlockFormat format, const uint8_t* in, size_t count, float* out, bool add, Stream stream) {
  if (count == 0) return;
  with_format(format, [&](auto tag) {
    using Format = typename decltype(tag)::type;
    decode<Format><<<grid_of(count), kThreads, 0, stream>>>(in, count, out, wire_of(format, count), add);
  });
  check_launch("decode_blocks");
}

}  // namespace trireme::gpu
