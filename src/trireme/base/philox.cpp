#include "trireme/base/philox.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trireme {
namespace {

constexpr uint32_t low(uint64_t value) { return static_cast<uint32_t>(value); }
constexpr uint32_t high(uint64_t value) { return static_cast<uint32_t>(value >> 32); }

/// The finaliser of SplitMix64: a bijection that spreads every bit.
constexpr uint64_t spread(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

constexpr uint64_t hash(std::string_view text) {  // FNV-1a
  uint64_t value = 0xcbf29ce484222325u;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return value;
}

using Block = std::array<float, 4>;

Block uniforms(const PhiloxCounter& words) {
  Block block;
  for (size_t i = 0; i < 4; ++i) block[i] = static_cast<float>(words[i] >> 8) * 0x1p-24f;
  return block;
}

/// Box and Muller in double: after rounding to float, the last bit of a libm's logarithm no longer shows.
Block normals(const PhiloxCounter& words) {
  Block block;
  for (size_t i = 0; i < 4; i += 2) {
    const double u = (words[i] + 0.5) * 0x1p-32;  // in (0, 1): the logarithm is finite
    const double angle = words[i + 1] * (2 * std::numbers::pi * 0x1p-32);
    const double radius = std::sqrt(-2 * std::log(u));
    block[i] = static_cast<float>(radius * std::cos(angle));
    block[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
  return block;
}

template <typename MakeBlock>
void fill(const Philox& philox, std::span<float> out, uint64_t first, MakeBlock make_block) {
  for (size_t done = 0; done < out.size();) {
    const uint64_t element = first + done;
    const Block block = make_block(philox(element / 4));
    const size_t skip = element % 4, n = std::min(4 - skip, out.size() - done);
    std::copy_n(block.begin() + static_cast<ptrdiff_t>(skip), n, out.begin() + static_cast<ptrdiff_t>(done));
    done += n;
  }
}

}  // namespace

PhiloxCounter philox4x32(PhiloxCounter c, PhiloxKey k) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xd2511f53u} * c[0], b = uint64_t{0xcd9e8d57u} * c[2];
    c = {high(b) ^ c[1] ^ k[0], low(b), high(a) ^ c[3] ^ k[1], low(a)};
    k[0] += 0x9e3779b9u;
    k[1] += 0xbb67ae85u;
  }
  return c;
}

Philox::Philox(uint64_t seed, std::string_view stream, uint64_t step) : step_(step) {
  const uint64_t key = spread(spread(seed + 0x9e3779b97f4a7c15u) + hash(stream));
  key_ = {low(key), high(key)};
}

PhiloxCounter Philox::operator()(uint64_t index) const {
  return philox4x32({low(index), high(index), low(step_), high(step_)}, key_);
}

float Philox::uniform(uint64_t element) const { return uniforms((*this)(element / 4))[element % 4]; }
float Philox::normal(uint64_t element) const { return normals((*this)(element / 4))[element % 4]; }

uint64_t Philox::below(uint64_t n, uint64_t element) const {
  // Two words an element: the high half of a 64 by 64 bit product.
  const PhiloxCounter words = (*this)(element / 2);
  const size_t at = element % 2 * 2;
  const uint64_t word = uint64_t{words[at + 1]} << 32 | words[at];
  return static_cast<uint64_t>(static_cast<unsigned __int128>(word) * n >> 64);
}

void Philox::fill_uniform(std::span<float> out, uint64_t first) const { fill(*this, out, first, uniforms); }
void Philox::fill_normal(std::span<float> out, uint64_t first) const { fill(*this, out, first, normals); }

}  // namespace trireme
