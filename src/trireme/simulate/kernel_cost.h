// How long one operator takes on one device: matrix products, attention, and what only moves bytes.
#pragma once

#include <cstdint>

#include "trireme/simulate/cluster.h"

namespace trireme {

inline double real(int64_t n) { return static_cast<double>(n); }

/// A product [m, k] x [k, n], `count` of them in one call.
struct Product {
  double m = 0, n = 0, k = 0;
  double count = 1;
  double flops() const { return 2 * m * n * k * count; }
};

/// Fraction of the peak that a product reaches: its tiles fill the device's units in whole waves ([Note: Waves]), and
/// its depth must pay for starting a tile, the more so the faster the type is.
double product_efficiency(const Product& product, const Device& device, NumberType type);

/// Seconds: the slower of computing and of moving its operands, and a start.
double product_seconds(const Product& product, const Device& device, NumberType type);
/// Seconds of an operator that moves so many bytes.
double memory_seconds(double bytes, const Device& device);
/// Fused attention with so many FLOPs.
double attention_seconds(double flops, const Device& device, NumberType type);

}  // namespace trireme
