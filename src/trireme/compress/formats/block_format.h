// Packed formats of flat float32 arrays: blocks of 512 elements with a scale each, 1 to 16 bits an element.
//
// [Note: Packed blocks]
// An array is cut into blocks of 512 elements, counted from its beginning; the last may be shorter. On the wire come
// the scales of all blocks (float32, little endian; bfloat16 has none), then their payloads. A block of n elements with
// k codes in a byte has ceil(n / k) bytes, and byte j holds the codes of elements j, j + ceil(n / k), j + 2 ceil(n /
// k), …, the first in the lowest bits (ternary: the first is the lowest digit to the base 3). So packing needs no
// shuffles, and every instruction set gives the same bytes. Formats of 8 and 16 bits hold their elements in order.
//
// Values: a block whose largest magnitude is below 2^-100 travels as zeros. A block that holds a NaN or an infinity
// becomes NaN as a whole (bfloat16: only the element), so that every rank learns of it.
//
// Threads: all. Nothing blocks. Fails with UsageError where sizes do not fit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace trireme {

enum class BlockFormat : uint8_t {
  kInt8,      ///< 255 levels, to nearest
  kQsgd8,     ///< 255 levels, stochastic: the mean is the value
  kQsgd4,     ///< 15
  kQsgd2,     ///< 3
  kQsgd1,     ///< 2: minus or plus the largest
  kTernary,   ///< 3 levels, stochastic, 5 codes in a byte
  kSign,      ///< the sign, times the mean magnitude
  kHalf,      ///< float16 under a power of two
  kBFloat16,  ///< no scale
};
inline constexpr size_t kNumBlockFormats = 9;
inline constexpr size_t kBlockElements = 512;

std::string_view name_of(BlockFormat format);
/// Whether the format rounds at random, so that encoding takes a RandomKey.
bool is_stochastic(BlockFormat format);

/// Whether a block has a scale in front of the payloads.
bool has_scale(BlockFormat format);

/// Names the random numbers of one encoding: a function of seed, stream and step; element i takes its own.
struct RandomKey {
  uint32_t key[2] = {0, 0};
  uint32_t high[2] = {0, 0};  ///< the upper words of the counter
};
RandomKey random_key(uint64_t seed, std::string_view stream, uint64_t step);

/// Bytes on the wire of `count` elements.
size_t encoded_bytes(BlockFormat format, size_t count);
/// The same as bits an element, for a long array.
double bits_per_element(BlockFormat format);

/// `first` is the number of values[0] among the elements of the random key: a multiple of 512.
void encode_blocks(BlockFormat format, std::span<const float> values, std::span<uint8_t> out,
                   const RandomKey& random = {}, uint64_t first = 0);
/// Encodes, and leaves in `values` what was not sent: value − decoded value, 0 where that is not finite.
void encode_blocks_keeping_rest(BlockFormat format, std::span<float> values, std::span<uint8_t> out,
                                const RandomKey& random = {}, uint64_t first = 0);
void decode_blocks(BlockFormat format, std::span<const uint8_t> in, std::span<float> out);
/// out += the decoded values.
void add_blocks(BlockFormat format, std::span<const uint8_t> in, std::span<float> out);

/// Cuts `count` elements into a part for each rank whose borders are borders of blocks: the counts.
std::vector<size_t> block_parts(size_t count, int num_ranks);

}  // namespace trireme
