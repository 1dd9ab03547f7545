#include "trireme/compress/method.h"

#include <fmt/format.h>

#include <cmath>

#include "trireme/base/enum_table.h"
#include "trireme/base/error.h"

namespace trireme {
namespace {

struct MethodFacts {
  Method method;
  std::string_view name;
  Family family;
  Feedback feedback;
  bool takes_one_message = true;
};

/// The one table of methods.
constexpr MethodFacts kMethodFacts[] = {
    {Method::kNone, "none", Family::kDense, Feedback::kPossible},
    {Method::kTopK, "topk", Family::kSparse, Feedback::kWanted},
    {Method::kDgc, "dgc", Family::kSparse, Feedback::kAlways},
    {Method::kTernGrad, "terngrad", Family::kBlocks, Feedback::kHarmful},
    {Method::kQsgd, "qsgd", Family::kBlocks, Feedback::kHarmful},
    {Method::kSign, "sign", Family::kBlocks, Feedback::kWanted},
    {Method::kOneBitAdam, "onebit_adam", Family::kBlocks, Feedback::kAlways, false},
    {Method::kPowerSgd, "powersgd", Family::kLowRank, Feedback::kWanted, false},
    {Method::kFloat16, "float16", Family::kBlocks, Feedback::kPossible},
    {Method::kBFloat16, "bfloat16", Family::kBlocks, Feedback::kPossible},
    {Method::kInt8, "int8", Family::kBlocks, Feedback::kPossible},
};
static_assert(has_row_of_each(kMethodFacts, &MethodFacts::method), "one row per Method, in its order");

const MethodFacts& method_facts(Method method) { return kMethodFacts[static_cast<size_t>(method)]; }

[[noreturn]] void refuse(const CompressionOptions& options, std::string_view setting, const std::string& value,
                         std::string_view cure) {
  throw UsageError(fmt::format("compression by {}: {} = {} is not possible", name_of(options.method), setting, value),
                   std::string(cure), {.key = fmt::format("compression.{}", setting)});
}

void check_density(const CompressionOptions& options) {
  if (options.density > 0 && options.density <= 1) return;  // false for a NaN, too
  refuse(options, "density", fmt::format("{}", options.density),
         "allowed: more than 0 (nothing would ever be sent) and at most 1 (everything); 0.01 sends one element in a "
         "hundred");
}

void check_feedback(const CompressionOptions& options) {
  if (!options.error_feedback) return;
  const bool on = *options.error_feedback;
  const Feedback feedback = feedback_of(options.method);
  if (on && feedback == Feedback::kHarmful) {
    refuse(options, "error_feedback", "true",
           "leave it at its default: stochastic rounding is right on average, and its error may be larger than the "
           "value, so residuals would grow");
  }
  if (!on && feedback == Feedback::kAlways) {
    refuse(options, "error_feedback", "false", "leave it at its default: the residual is part of the method");
  }
}

}  // namespace

Family family_of(Method method) { return method_facts(method).family; }
Feedback feedback_of(Method method) { return method_facts(method).feedback; }
bool takes_one_message(Method method) { return method_facts(method).takes_one_message; }
std::string_view name_of(Method method) { return method_facts(method).name; }

std::vector<std::string_view> names_of(Method) {
  std::vector<std::string_view> names;
  for (const MethodFacts& fact : kMethodFacts) names.push_back(fact.name);
  return names;
}

void check(const CompressionOptions& options) {
  check_feedback(options);
  switch (options.method) {
    case Method::kTopK:
      check_density(options);
      break;
    case Method::kDgc:
      check_density(options);
      if (!(options.momentum >= 0 && options.momentum < 1)) {
        refuse(options, "momentum", fmt::format("{}", options.momentum), "allowed: from 0 to less than 1");
      }
      if (!(options.clip_norm >= 0))
        refuse(options, "clip_norm", fmt::format("{}", options.clip_norm), "allowed: 0 (off) or more");
      break;
    case Method::kTernGrad:
      if (!(options.clip_deviations >= 0)) {
        refuse(options, "clip_deviations", fmt::format("{}", options.clip_deviations),
               "allowed: 0 (off) or more; 2.5 is usual");
      }
      break;
    case Method::kQsgd:
      if (options.bits != 1 && options.bits != 2 && options.bits != 4 && options.bits != 8) {
        refuse(options, "bits", fmt::format("{}", options.bits), "allowed: 1, 2, 4 or 8, which fill bytes");
      }
      break;
    case Method::kPowerSgd:
      if (options.rank < 1 || options.rank > 256) {
        refuse(options, "rank", fmt::format("{}", options.rank), "allowed: 1 to 256; 1 to 4 is usual");
      }
      break;
    default:
      break;
  }
}

bool keeps_residual(const CompressionOptions& options) {
  const Feedback feedback = feedback_of(options.method);
  if (feedback == Feedback::kAlways) return true;
  return options.error_feedback.value_or(feedback == Feedback::kWanted);
}

std::optional<BlockFormat> block_format(const CompressionOptions& options) {
  switch (options.method) {
    case Method::kTernGrad:
      return BlockFormat::kTernary;
    case Method::kQsgd:
      return options.bits == 8   ? BlockFormat::kQsgd8
             : options.bits == 4 ? BlockFormat::kQsgd4
             : options.bits == 2 ? BlockFormat::kQsgd2
                                 : BlockFormat::kQsgd1;
    case Method::kSign:
    case Method::kOneBitAdam:
      return BlockFormat::kSign;
    case Method::kFloat16:
      return BlockFormat::kHalf;
    case Method::kBFloat16:
      return BlockFormat::kBFloat16;
    case Method::kInt8:
      return BlockFormat::kInt8;
    case Method::kNone:
    case Method::kTopK:
    case Method::kDgc:
    case Method::kPowerSgd:
      break;
  }
  return std::nullopt;
}

double bits_per_element(const CompressionOptions& options, size_t rows, size_t columns) {
  if (const auto format = block_format(options)) return bits_per_element(*format);
  constexpr double kPerReach = 32.0 / 65536;  // [Note: Sparse format]
  switch (options.method) {
    case Method::kTopK:
    case Method::kDgc:
      return 48 * options.density + kPerReach;
    case Method::kPowerSgd: {
      const auto r = static_cast<double>(options.rank), n = static_cast<double>(rows), m = static_cast<double>(columns);
      return std::min(32.0, 32 * r * (n + m) / (n * m));
    }
    default:
      return 32;
  }
}

double dgc_density(const CompressionOptions& options, uint64_t step) {
  if (step >= options.warmup_steps) return options.density;
  // Equal parts of the warm-up for 1/4, 1/16, 1/64, … down to the last that is above the density itself.
  const double stages = std::max(1.0, std::ceil(std::log(options.density) / std::log(0.25) - 1e-9) - 1);
  const double stage = std::floor(static_cast<double>(step) * stages / static_cast<double>(options.warmup_steps));
  return std::max(options.density, std::pow(0.25, stage + 1));
}

}  // namespace trireme
