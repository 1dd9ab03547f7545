#include "trireme/compress/formats/block_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "trireme/base/enum_table.h"
#include "trireme/base/error.h"
#include "trireme/base/philox.h"
#include "trireme/compress/formats/kernels.h"

namespace trireme {
namespace compress_kernels {
namespace {

struct FormatFacts {
  BlockFormat format;
  std::string_view name;
  int per_byte;  ///< codes per byte; 0: two bytes per element
  bool stochastic = false, has_scale = true;
};

/// The one table of packed formats.
constexpr FormatFacts kFormatFacts[] = {
    {BlockFormat::kInt8, "int8", 1},
    {BlockFormat::kQsgd8, "qsgd8", 1, true},
    {BlockFormat::kQsgd4, "qsgd4", 2, true},
    {BlockFormat::kQsgd2, "qsgd2", 4, true},
    {BlockFormat::kQsgd1, "qsgd1", 8, true},
    {BlockFormat::kTernary, "ternary", 5, true},
    {BlockFormat::kSign, "sign", 8},
    {BlockFormat::kHalf, "float16", 0},
    {BlockFormat::kBFloat16, "bfloat16", 0, false, false},
};
static_assert(has_row_of_each(kFormatFacts, &FormatFacts::format) && std::size(kFormatFacts) == kNumBlockFormats,
              "one row per BlockFormat, in its order");

const FormatFacts& format_facts(BlockFormat format) { return kFormatFacts[static_cast<size_t>(format)]; }
size_t num_blocks(size_t count) { return (count + kBlockElements - 1) / kBlockElements; }
size_t scale_bytes(BlockFormat format, size_t count) { return has_scale(format) ? 4 * num_blocks(count) : 0; }

/// Of one block.
size_t payload_bytes(BlockFormat format, size_t count) {
  const auto per_byte = static_cast<size_t>(format_facts(format).per_byte);
  return per_byte == 0 ? 2 * count : (count + per_byte - 1) / per_byte;
}

/// Calls done(place, length, payload, scale) after each block.
template <typename Done>
void encode_each(const Kernels& kernels, BlockFormat format, const float* values, size_t count, uint8_t* out,
                 const RandomKey& random, uint64_t first, Done done) {
  const auto encode = kernels.encode[static_cast<size_t>(format)];
  uint8_t* payload = out + scale_bytes(format, count);
  for (size_t at = 0; at < count; at += kBlockElements) {
    const size_t n = std::min(kBlockElements, count - at);
    float scale = 0;
    encode(values + at, n, random, (first + at) / kBlockElements, &scale, payload);
    if (has_scale(format)) std::memcpy(out + at / kBlockElements * 4, &scale, 4);
    done(at, n, payload, scale);
    payload += payload_bytes(format, n);
  }
}

}  // namespace

std::vector<const Kernels*> available() {
  std::vector<const Kernels*> all = {avx512(), avx2(), portable()};
  std::erase(all, nullptr);
  return all;
}

const Kernels& fastest() {
  static const Kernels& kernels = *available().front();
  return kernels;
}

void encode_blocks(const Kernels& kernels, BlockFormat format, const float* values, size_t count, uint8_t* out,
                   const RandomKey& random, uint64_t first) {
  encode_each(kernels, format, values, count, out, random, first, [](size_t, size_t, const uint8_t*, float) {});
}

void encode_blocks_keeping_rest(const Kernels& kernels, BlockFormat format, float* values, size_t count, uint8_t* out,
                                const RandomKey& random, uint64_t first) {
  const auto decode = kernels.decode[static_cast<size_t>(format)];
  alignas(64) float sent[kBlockElements];
  encode_each(kernels, format, values, count, out, random, first,
              [&](size_t at, size_t n, const uint8_t* payload, float scale) {
                decode(payload, n, scale, sent);
                kernels.keep_rest(values + at, sent, n);
              });
}

void decode_blocks(const Kernels& kernels, BlockFormat format, const uint8_t* in, size_t count, float* out, bool add) {
  const auto decode = (add ? kernels.add : kernels.decode)[static_cast<size_t>(format)];
  const uint8_t* payload = in + scale_bytes(format, count);
  for (size_t at = 0; at < count; at += kBlockElements) {
    const size_t n = std::min(kBlockElements, count - at);
    float scale = 0;
    if (has_scale(format)) std::memcpy(&scale, in + at / kBlockElements * 4, 4);
    decode(payload, n, scale, out + at);
    payload += payload_bytes(format, n);
  }
}

}  // namespace compress_kernels

namespace {

using namespace compress_kernels;

void check_sizes(BlockFormat format, size_t count, size_t num_bytes) {
  const size_t wanted = encoded_bytes(format, count);
  if (num_bytes == wanted) return;
  throw UsageError(fmt::format("{} elements as {} have {} bytes, but there is room for {}", count, name_of(format),
                               wanted, num_bytes),
                   "encoded_bytes() tells how much room is needed");
}

void check_first(uint64_t first) {
  if (first % kBlockElements == 0) return;
  throw UsageError(
      fmt::format("an encoding begins at element {}, which is inside a block of {}", first, kBlockElements),
      "cut arrays with block_parts()");
}

}  // namespace

std::string_view name_of(BlockFormat format) { return format_facts(format).name; }

bool has_scale(BlockFormat format) { return format_facts(format).has_scale; }

bool is_stochastic(BlockFormat format) { return format_facts(format).stochastic; }

RandomKey random_key(uint64_t seed, std::string_view stream, uint64_t step) {
  const PhiloxCounter words = Philox(seed, stream, step)(0);
  return {{words[0], words[1]}, {words[2], words[3]}};
}

size_t encoded_bytes(BlockFormat format, size_t count) {
  const size_t rest = count % kBlockElements;
  return scale_bytes(format, count) + count / kBlockElements * payload_bytes(format, kBlockElements) +
         payload_bytes(format, rest);
}

double bits_per_element(BlockFormat format) {
  return 8.0 * static_cast<double>(encoded_bytes(format, kBlockElements)) / kBlockElements;
}

void encode_blocks(BlockFormat format, std::span<const float> values, std::span<uint8_t> out, const RandomKey& random,
                   uint64_t first) {
  check_sizes(format, values.size(), out.size());
  check_first(first);
  encode_blocks(fastest(), format, values.data(), values.size(), out.data(), random, first);
}

void encode_blocks_keeping_rest(BlockFormat format, std::span<float> values, std::span<uint8_t> out,
                                const RandomKey& random, uint64_t first) {
  check_sizes(format, values.size(), out.size());
  check_first(first);
  encode_blocks_keeping_rest(fastest(), format, values.data(), values.size(), out.data(), random, first);
}

void decode_blocks(BlockFormat format, std::span<const uint8_t> in, std::span<float> out) {
  check_sizes(format, out.size(), in.size());
  decode_blocks(fastest(), format, in.data(), out.size(), out.data(), false);
}

void add_blocks(BlockFormat format, std::span<const uint8_t> in, std::span<float> out) {
  check_sizes(format, out.size(), in.size());
  decode_blocks(fastest(), format, in.data(), out.size(), out.data(), true);
}

std::vector<size_t> block_parts(size_t count, int num_ranks) {
  const auto ranks = static_cast<size_t>(num_ranks);
  const size_t blocks = num_blocks(count);
  std::vector<size_t> counts(ranks);
  for (size_t r = 0; r < ranks; ++r) {
    const size_t first = std::min(count, blocks * r / ranks * kBlockElements);
    counts[r] = std::min(count, blocks * (r + 1) / ranks * kBlockElements) - first;
  }
  return counts;
}

}  // namespace trireme
