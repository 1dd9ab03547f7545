// Methods of compression by name, with their settings: plain values that are checked before anything is built on them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/names.h"
#include "trireme/compress/formats/block_format.h"

namespace trireme {

enum class Method : uint8_t {
  kNone,
  kTopK,
  kDgc,
  kTernGrad,
  kQsgd,
  kSign,
  kOneBitAdam,
  kPowerSgd,
  kFloat16,
  kBFloat16,
  kInt8,
};

/// Methods of a family share their classes.
enum class Family : uint8_t {
  kDense,    ///< not compressed
  kSparse,   ///< chosen elements
  kLowRank,  ///< two factors of a matrix
  kBlocks,   ///< packed blocks: those with a block_format()
};
Family family_of(Method method);

/// What error feedback is to a method.
enum class Feedback : uint8_t {
  kWanted,    ///< on by default
  kPossible,  ///< off by default
  kHarmful,   ///< refused
  kAlways,    ///< part of the method
};
Feedback feedback_of(Method method);

/// Whether a gradient is sent in one message, which parameter servers need.
bool takes_one_message(Method method);

std::string_view name_of(Method method);
std::vector<std::string_view> names_of(Method);

struct CompressionOptions {
  Method method = Method::kNone;
  double density = 0.01;  ///< top-k, dgc: fraction of elements sent
  int bits = 8;           ///< qsgd: 1, 2, 4 or 8
  int rank = 4;           ///< powersgd: rank of the factors
  /// What was not sent is added to the next gradient. Unset: as the method wants it.
  std::optional<bool> error_feedback = std::nullopt;
  /// The first steps: sent dense, or, for dgc, of decreasing density.
  uint64_t warmup_steps = 0;
  float momentum = 0.9f;      ///< dgc
  float clip_norm = 0;        ///< dgc: of the gradient of all ranks together; 0: no clipping
  float clip_deviations = 0;  ///< terngrad: elements are clipped at so many standard deviations; 0: not at all
  uint64_t seed = 0;
};

/// Throws UsageError that names the setting, its value and what is allowed. Settings of other methods are not looked
/// at.
void check(const CompressionOptions& options);

/// Whether what was not sent is kept for the next step.
bool keeps_residual(const CompressionOptions& options);
/// The packed format of the methods that have one.
std::optional<BlockFormat> block_format(const CompressionOptions& options);

/// Bits an element of a long array that a rank hands over once, against 32 without compression. Low rank depends on the
/// shape: rows × columns.
double bits_per_element(const CompressionOptions& options, size_t rows = 1, size_t columns = 1);

/// The density of dgc at a step: a quarter of the elements at first, then a quarter of that, … until `density`.
double dgc_density(const CompressionOptions& options, uint64_t step);

}  // namespace trireme
