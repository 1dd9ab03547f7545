// Time of one operator on one device: matmuls, fused attention, and memory-bound operators.
#pragma once

#include <cstdint>

#include "trireme/simulate/cluster.h"

namespace trireme {

inline double real(int64_t n) { return static_cast<double>(n); }

/// A batched matmul: `count` products [m, k] x [k, n] in one call.
struct Product {
  double m = 0, n = 0, k = 0;
  double count = 1;
  double flops() const { return 2 * m * n * k * count; }
};

/// Fraction of the peak that a matmul reaches. Its tiles fill the device's units in whole waves ([Note: Waves]), and
/// its inner dim must amortize the start of a tile, more so for faster types.
double product_efficiency(const Product& product, const Device& device, NumberType type);

/// Seconds of a matmul: the maximum of compute and operand traffic, plus the start of a kernel.
double product_seconds(const Product& product, const Device& device, NumberType type);
/// Seconds of a memory-bound operator that moves `bytes` bytes.
double memory_seconds(double bytes, const Device& device);
/// Seconds of fused attention with `flops` FLOPs.
double attention_seconds(double flops, const Device& device, NumberType type);

}  // namespace trireme
