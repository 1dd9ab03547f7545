// Random numbers that depend on what they are for, not on who draws them when: Philox4x32-10 (Salmon et al., 2011).
//
// A stream is named by (seed, name, step); number i of it is a pure function of these. Ranks that hold different
// parts of one tensor draw the same numbers as a single rank would, and recomputation needs no saved state.
// Threads: all. Nothing here fails.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace trireme {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

/// The bijection of Random123, bit for bit.
PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key);

class Philox {
 public:
  explicit Philox(uint64_t seed, std::string_view stream = {}, uint64_t step = 0);

  /// Four words for each index.
  PhiloxCounter operator()(uint64_t index) const;

  // Element i takes word i % 4 of index i / 4 (a normal shares two words with its neighbour, below() takes two words
  // of index i / 2), so that filling a
  // range in parts or at once gives the same.
  /// In [0, 1), a multiple of 2^-24.
  float uniform(uint64_t element) const;
  /// Mean 0, deviation 1.
  float normal(uint64_t element) const;
  /// In [0, n), n > 0; the bias is below n / 2^64.
  uint64_t below(uint64_t n, uint64_t element) const;
  /// Elements first, first + 1, …
  void fill_uniform(std::span<float> out, uint64_t first = 0) const;
  void fill_normal(std::span<float> out, uint64_t first = 0) const;

  // What a GPU draws the same numbers from (gpu/kernels/pointwise.h).
  PhiloxKey key() const { return key_; }
  uint64_t step() const { return step_; }

 private:
  PhiloxKey key_;
  uint64_t step_;
};

}  // namespace trireme
