#include "trireme/simulate/kernel_cost.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace trireme {
namespace {

/// Tile of a matmul that one unit computes at a time, and the efficiency of the unit with it.
struct Tile {
  double rows, columns, quality;
};

// Smaller tiles load more bytes per FLOP.
constexpr std::array<Tile, 5> kTiles = {
    {{256, 128, 1.0}, {128, 256, 1.0}, {128, 128, 0.93}, {128, 64, 0.75}, {64, 64, 0.6}}};

constexpr double kMostSplits = 64, kSplitQuality = 0.9;

double kernel_seconds(const Device& device) { return device.kernel_us * 1e-6; }

}  // namespace

// [Note: Waves]
// A matmul is computed in tiles, one per unit; a wave is one tile on every unit. 1.1 waves take as long as 2. If there
// are few tiles, several units compute one tile, each a range of the inner dim, and their partial sums are added
// (split-K). Libraries pick the best tile and split, so the minimum over both counts.
double product_efficiency(const Product& product, const Device& device, NumberType type) {
  const double half_peak = std::max(device.peak(NumberType::kFloat16), device.peak(NumberType::kBfloat16));
  const double half_depth = device.product_half_depth * (half_peak > 0 ? device.peak(type) / half_peak : 1);
  if (device.units == 1) {  // a core: its tiles are too small to matter
    return device.product_efficiency * product.k / (product.k + half_depth);
  }
  const double useful = product.m * product.n * product.count;
  double best = 0;
  for (const Tile& tile : kTiles) {
    const double tiles = std::ceil(product.m / tile.rows) * std::ceil(product.n / tile.columns) * product.count;
    for (double split = 1; split <= kMostSplits && (split == 1 || tiles * split <= 2 * device.units); split *= 2) {
      const double waves = std::ceil(tiles * split / device.units);
      const double made = waves * device.units * tile.rows * tile.columns / split;
      const double depth = product.k / split;
      const double quality = tile.quality * (split > 1 ? kSplitQuality : 1);
      best = std::max(best, useful / made * quality * depth / (depth + half_depth));
    }
  }
  return device.product_efficiency * best;
}

double product_seconds(const Product& product, const Device& device, NumberType type) {
  const double compute = product.flops() / (device.peak(type) * product_efficiency(product, device, type));
  const double elements = (product.m * product.k + product.k * product.n + product.m * product.n) * product.count;
  const double memory = elements * bytes_of(type) / (device.memory_bandwidth * device.memory_efficiency);
  return std::max(compute, memory) + kernel_seconds(device);
}

double memory_seconds(double bytes, const Device& device) {
  return bytes / (device.memory_bandwidth * device.memory_efficiency) + kernel_seconds(device);
}

double attention_seconds(double flops, const Device& device, NumberType type) {
  return flops / (device.peak(type) * device.attention_efficiency) + kernel_seconds(device);
}

}  // namespace trireme
