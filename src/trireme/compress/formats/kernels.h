// The inner loops of compression, one table of them for each instruction set. For this folder, its tests and bench.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "trireme/compress/formats/block_format.h"

namespace trireme::compress_kernels {

/// What a product is to do with what lies there.
enum class Store { kSet, kAdd, kSubtract };

/// Every instruction set gives the same bits; only the payloads of NaNs may differ.
struct Kernels {
  /// One block of at most 512 values; `block` is its number among the random key's elements.
  using Encode = void (*)(const float* values, size_t count, const RandomKey& random, uint64_t block, float* scale,
                          uint8_t* payload);
  using Decode = void (*)(const uint8_t* payload, size_t count, float scale, float* out);

  std::string_view name;
  Encode encode[kNumBlockFormats];
  Decode decode[kNumBlockFormats];  ///< out = …
  Decode add[kNumBlockFormats];     ///< out += …
  /// sum −= sent, 0 where that is not finite.
  void (*keep_rest)(float* sum, const float* sent, size_t count);
  /// Writes first + i for each value whose magnitude, as bits, is at least `least`, in order; `indices` has room for
  /// `count`, and one more. Returns how many.
  size_t (*collect)(const float* values, size_t count, uint32_t least, uint32_t first, uint32_t* indices);

  // Low rank. M has rows × columns, P rows × rank, Q is kept transposed: rank × columns.
  /// P = M Q.
  void (*project)(const float* m, size_t rows, size_t columns, const float* q, size_t rank, float* p);
  /// Q = Mᵀ P.
  void (*project_back)(const float* m, size_t rows, size_t columns, const float* p, size_t rank, float* q);
  /// out = P Qᵀ, or out += or −= it.
  void (*expand)(const float* p, const float* q, size_t rows, size_t columns, size_t rank, Store store, float* out);
};

/// The vectors that an instruction set has.
template <size_t kBytes_>
struct VectorsOf {
  static constexpr size_t kBytes = kBytes_;
  typedef uint32_t Bits __attribute__((vector_size(kBytes)));
  typedef uint64_t Wide __attribute__((vector_size(kBytes)));
  typedef float Floats __attribute__((vector_size(kBytes)));
};

/// Null where this machine cannot run them.
const Kernels* portable();
#if defined(__x86_64__)
const Kernels* avx2();
const Kernels* avx512();
#else
inline const Kernels* avx2() { return nullptr; }
inline const Kernels* avx512() { return nullptr; }
#endif

/// The tables that this machine can run, the fastest first.
std::vector<const Kernels*> available();
const Kernels& fastest();

// The functions of block_format.h with a given table.
void encode_blocks(const Kernels& kernels, BlockFormat format, const float* values, size_t count, uint8_t* out,
                   const RandomKey& random, uint64_t first);
void encode_blocks_keeping_rest(const Kernels& kernels, BlockFormat format, float* values, size_t count, uint8_t* out,
                                const RandomKey& random, uint64_t first);
void decode_blocks(const Kernels& kernels, BlockFormat format, const uint8_t* in, size_t count, float* out, bool add);

}  // namespace trireme::compress_kernels
