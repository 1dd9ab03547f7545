// A random order of 0 … n - 1 that takes no memory: number i of it is computed, not looked up.
//
// A Feistel network over pairs (l, r) with l < a, r < b, a·b ≥ n: each round adds a Philox number of one half to the
// other, modulo its size, which can be undone, so pairs map to pairs one to one. A result of n or more is sent through
// again (cycle walking), which keeps the map one to one on 0 … n - 1. As a and b are near √n, that is rare.
#pragma once

#include <cstdint>
#include <string_view>

#include "trireme/base/philox.h"

namespace trireme {

/// A value. Threads: all.
class Permutation {
 public:
  /// n from 1 to 2^62; equal arguments give equal orders, on every machine. `stream` says what the order is for.
  Permutation(uint64_t n, uint64_t seed, uint64_t epoch, std::string_view stream = "sample order");
  uint64_t size() const { return n_; }
  uint64_t operator()(uint64_t index) const;  ///< index < n

 private:
  uint64_t once(uint64_t value) const;

  uint64_t n_, a_, b_;
  Philox philox_;
};

}  // namespace trireme
