#include "trireme/runtime/group_buffers.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(GroupBuffers, NeighboursTakeTurns) {
  int made = 0;
  GroupBuffers buffers([&](int64_t count) {
    ++made;
    return torch::zeros({count});
  });
  for (const auto& [turn, size] : {std::pair<size_t, int64_t>{0, 100}, {1, 80}, {0, 120}, {2, 500}}) {
    buffers.expect(turn, size);
  }
  EXPECT_EQ(buffers.num_bytes(), 0u) << "nothing is made before it is needed";
  for (int step = 0; step < 3; ++step) {
    const torch::Tensor first = buffers.take(0, 100), second = buffers.take(1, 80);
    EXPECT_EQ(first.numel(), 100);
    EXPECT_FALSE(buffers.is_free(0));
    EXPECT_NE(first.data_ptr(), second.data_ptr());
    buffers.give_back(first);
    EXPECT_TRUE(buffers.is_free(0));
    const torch::Tensor third = buffers.take(0, 120);
    EXPECT_EQ(third.data_ptr(), first.data_ptr());
    buffers.give_back(third);
    buffers.give_back(second);
  }
  EXPECT_EQ(made, 2);
  EXPECT_EQ(buffers.num_bytes(), sizeof(float) * (120 + 80));
}

// Who comes when it is not its turn gets memory all the same, and the next one such gets the same.
TEST(GroupBuffers, AGroupOutOfTurnHasMemoryOfItsOwn) {
  GroupBuffers buffers([](int64_t count) { return torch::zeros({count}); });
  buffers.expect(0, 100);
  const torch::Tensor first = buffers.take(0, 100);
  for (int step = 0; step < 3; ++step) {
    const torch::Tensor early = buffers.take(0, 60);
    EXPECT_NE(early.data_ptr(), first.data_ptr());
    buffers.give_back(early);
  }
  EXPECT_EQ(buffers.num_bytes(), sizeof(float) * 160);
}

}  // namespace
}  // namespace trireme
