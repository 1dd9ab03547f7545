// Tests of names, settings that cannot be, and formulas of size.
#include "trireme/compress/method.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/compress/compress_test_util.h"

namespace trireme {
namespace {

std::string error_of(const CompressionOptions& options) {
  try {
    check(options);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Method, HasANameAndIsFoundByIt) {
  for (const std::string_view name : all_names<Method>()) EXPECT_EQ(name_of(named<Method>(name).value()), name);
  EXPECT_FALSE(named<Method>("topkk"));
}

TEST(Method, DefaultsAreAllowed) {
  for (const CompressionOptions& options : all_options()) EXPECT_EQ(error_of(options), "no error") << label(options);
}

TEST(Method, OfPackedBlocksHasAFormat) {
  for (const CompressionOptions& options : all_options()) {
    EXPECT_EQ(block_format(options).has_value(), family_of(options.method) == Family::kBlocks) << label(options);
  }
}

TEST(Method, RefusesWhatCannotBe) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Method method : {Method::kTopK, Method::kDgc}) {
    for (const double density : {0.0, -0.1, 1.01, nan}) {
      const std::string error = error_of({.method = method, .density = density});
      EXPECT_NE(error.find("density = "), std::string::npos) << error;
      EXPECT_NE(error.find(name_of(method)), std::string::npos) << error;
    }
  }
  for (const int bits : {-1, 0, 3, 5, 16, 32}) {
    EXPECT_NE(error_of({.method = Method::kQsgd, .bits = bits}).find("1, 2, 4 or 8"), std::string::npos);
  }
  for (const int rank : {-1, 0, 1000}) {
    EXPECT_NE(error_of({.method = Method::kPowerSgd, .rank = rank}).find("rank = "), std::string::npos);
  }
  EXPECT_NE(error_of({.method = Method::kDgc, .momentum = 1}).find("momentum = 1"), std::string::npos);
  EXPECT_NE(error_of({.method = Method::kDgc, .clip_norm = -1}).find("clip_norm"), std::string::npos);
  EXPECT_NE(error_of({.method = Method::kTernGrad, .clip_deviations = -1}).find("clip_deviations"), std::string::npos);
  EXPECT_NE(error_of({.method = Method::kQsgd, .error_feedback = true}).find("error_feedback"), std::string::npos);
  EXPECT_NE(error_of({.method = Method::kDgc, .error_feedback = false}).find("error_feedback"), std::string::npos);
  EXPECT_EQ(error_of({.method = Method::kQsgd, .density = 7}), "no error");  // a setting of others
}

TEST(Method, KnowsWhetherItKeepsAResidual) {
  EXPECT_TRUE(keeps_residual({.method = Method::kTopK}));
  EXPECT_FALSE(keeps_residual({.method = Method::kTopK, .error_feedback = false}));
  EXPECT_FALSE(keeps_residual({.method = Method::kQsgd}));
  EXPECT_FALSE(keeps_residual({.method = Method::kInt8}));
  EXPECT_TRUE(keeps_residual({.method = Method::kInt8, .error_feedback = true}));
  EXPECT_TRUE(keeps_residual({.method = Method::kOneBitAdam}));
}

TEST(Method, SizesFollowTheFormulas) {
  EXPECT_DOUBLE_EQ(bits_per_element({.method = Method::kNone}), 32);
  EXPECT_NEAR(bits_per_element({.method = Method::kTopK, .density = 0.01}), 0.48, 0.001);
  EXPECT_DOUBLE_EQ(bits_per_element({.method = Method::kPowerSgd, .rank = 4}, 1000, 500), 32 * 4 * 1500 / 5e5);
  EXPECT_DOUBLE_EQ(bits_per_element({.method = Method::kPowerSgd, .rank = 4}, 1, 500), 32);
  for (const int bits : {1, 2, 4, 8}) {
    EXPECT_DOUBLE_EQ(bits_per_element({.method = Method::kQsgd, .bits = bits}), bits + 0.0625);
  }
}

TEST(Method, DgcBecomesSparserStepByStep) {
  CompressionOptions options{.method = Method::kDgc, .density = 0.001, .warmup_steps = 40};
  EXPECT_DOUBLE_EQ(dgc_density(options, 0), 0.25);
  EXPECT_DOUBLE_EQ(dgc_density(options, 10), 0.0625);
  EXPECT_DOUBLE_EQ(dgc_density(options, 20), 0.015625);
  EXPECT_DOUBLE_EQ(dgc_density(options, 30), 0.00390625);
  EXPECT_DOUBLE_EQ(dgc_density(options, 40), 0.001);
  for (const double density : {0.25, 0.2, 0.9, 1.0}) {
    options.density = density;
    for (uint64_t step = 0; step < 50; ++step) {
      EXPECT_GE(dgc_density(options, step), density);
      EXPECT_LE(dgc_density(options, step), std::max(0.25, density));
    }
  }
}

}  // namespace
}  // namespace trireme
