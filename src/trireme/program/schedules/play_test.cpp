#include "trireme/program/schedules/play.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

std::vector<Instruction> order(std::initializer_list<std::pair<OpCode, int>> computations, int stage) {
  std::vector<Instruction> list;
  for (const auto& [op, micro_batch] : computations)
    list.push_back({.op = op, .stage = stage, .micro_batch = micro_batch});
  return list;
}

TEST(Play, TimesWhatEachComputationTakesAndWaitsFor) {
  constexpr OpCode F = OpCode::kForward, B = OpCode::kBackward;
  const StageTimes times{.forward = {1, 3}, .backward = {2, 5}, .weight = {4, 7}, .comm = {0.5, 0.25}};
  const PlayedOrders played = play_orders(
      {order({{F, 0}, {F, 1}, {B, 0}, {B, 1}}, 0), order({{F, 0}, {B, 0}, {F, 1}, {B, 1}}, 1)}, {0, 1}, 2, times);
  EXPECT_EQ(played.end[0], (std::vector<double>{1, 2, 16.75 + 6, 31.75 + 6}));
  EXPECT_EQ(played.end[1], (std::vector<double>{1.5 + 3, 4.5 + 12, 16.5 + 3, 19.5 + 12}));
  EXPECT_EQ(played.cost, 37.75);
}

TEST(Play, TimesTheHalvesOfABackwardPass) {
  const PlayedOrders played =
      play_orders({order({{OpCode::kForward, 0}, {OpCode::kBackwardInput, 0}, {OpCode::kWeightGrad, 0}}, 0)}, {0}, 1,
                  {.forward = {1}, .backward = {2}, .weight = {4}, .comm = {0}});
  EXPECT_EQ(played.end[0], (std::vector<double>{1, 3, 7}));
}

}  // namespace
}  // namespace trireme
