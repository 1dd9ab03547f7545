#include "trireme/tensor/kernel_environment.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace trireme {
namespace {

TEST(KernelEnvironment, TilesAreBrokenWhereAnnouncedAndNotDescribed) {
  EXPECT_FALSE(tiles_are_broken({}));
  EXPECT_FALSE(tiles_are_broken({.announced = true, .palettes = 1, .num_tiles = 8}));
  EXPECT_TRUE(tiles_are_broken({.announced = true}));
  EXPECT_TRUE(tiles_are_broken({.announced = true, .palettes = 1, .num_tiles = 0}));
}

/// Dies of an illegal instruction on processors with broken tiles, unless they are left alone.
TEST(KernelEnvironment, ProductsOfBfloat16Work) {
  const at::Tensor product = at::mm(at::ones({32, 64}, at::kBFloat16), at::ones({64, 48}, at::kBFloat16));
  EXPECT_TRUE(product.eq(64).all().item<bool>());
  EXPECT_TRUE(!tiles_are_broken(read_tile_facts()) || std::getenv("ONEDNN_MAX_CPU_ISA") != nullptr);
}

TEST(KernelEnvironment, MklIsStrict) {
  ASSERT_NE(std::getenv("MKL_CBWR"), nullptr);
  EXPECT_STREQ(std::getenv("MKL_CBWR"), "AUTO,STRICT");
}

}  // namespace
}  // namespace trireme
