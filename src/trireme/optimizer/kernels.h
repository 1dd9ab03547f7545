// Optimizer arithmetic on flat memory, one pass each. The same bits on every processor: each element uses IEEE
// operations in a fixed order, never contracted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace trireme {

struct AdamStep {
  float factor = 1;  ///< applied to gradients first: average, clipping, loss scale
  float lr = 0;      ///< divided by the first bias correction
  float keep = 1;    ///< 1 − lr · weight decay, for AdamW
  float decay = 0;   ///< weight decay added to the gradient, for Adam
  float beta1 = 0.9f, beta2 = 0.999f;
  float eps = 1e-8f;
  float inverse_root = 1;  ///< 1 / √(second bias correction)
};
void adam_update(float* weight, const float* gradient, float* first, float* second, size_t count, const AdamStep& step);

struct SgdStep {
  float factor = 1;
  float lr = 0;
  float decay = 0;
  float momentum = 0;
  bool nesterov = false;
};
/// `velocity` may be null if momentum is 0.
void sgd_update(float* weight, const float* gradient, float* velocity, size_t count, const SgdStep& step);

/// Σ x², in fixed blocks by element number whose sums are added in a tree: the same however the array is split at
/// blocks.
double sum_of_squares(const float* values, size_t count);

/// The two halves of sum_of_squares, for an array spread over machines: the sums of its blocks of kSquaresBlock
/// elements, appended part by part (each part but the last is a whole number of blocks), and their total.
inline constexpr size_t kSquaresBlock = 4096;
void append_block_squares(const float* values, size_t count, std::vector<double>& sums);
double block_squares(const float* block, size_t count);  ///< the sum of a single block
double add_block_squares(std::span<const double> sums);

}  // namespace trireme
