#include "trireme/program/data_parallel.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "trireme/base/error.h"
#include "trireme/program/check/check.h"

namespace trireme {
namespace {

std::vector<Program> all_ranks(const DataParallelShape& shape) {
  std::vector<Program> programs;
  for (int rank = 0; rank < shape.num_ranks; ++rank) programs.push_back(lower_data_parallel(shape, rank));
  return programs;
}

TEST(DataParallelProgram, SumsAlongTheTreeForEveryShape) {
  for (int leaves = 1; leaves <= 48; ++leaves) {
    for (int ranks = 1; ranks <= leaves; ++ranks) {
      if (leaves % ranks != 0) continue;
      for (const int leaf_size : {1, 2, 3}) {
        const DataParallelShape shape{leaves * leaf_size, leaves, ranks, 2};
        EXPECT_NO_THROW(check_programs(all_ranks(shape), leaves)) << leaves << " leaves, " << ranks << " ranks";
      }
    }
  }
}

TEST(DataParallelProgram, SumsAlongTheTreeForUnequalBatchParts) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 300; ++trial) {
    const int ranks = 1 + static_cast<int>(random() % 6), leaf_size = 1 + static_cast<int>(random() % 3);
    std::vector<int> batch_parts;
    for (int rank = 0; rank < ranks; ++rank) batch_parts.push_back(1 + static_cast<int>(random() % 12));
    const int leaves = std::accumulate(batch_parts.begin(), batch_parts.end(), 0);
    const DataParallelShape shape{leaves * leaf_size, leaves, ranks, 2, batch_parts};
    EXPECT_NO_THROW(check_programs(all_ranks(shape), leaves)) << leaves << " leaves, " << ranks << " ranks";
  }
}

TEST(DataParallelProgram, NeedsNoMoreSlotsThanTheTreeIsDeep) {
  EXPECT_EQ(lower_data_parallel({8, 8, 1, 1}, 0).num_slots, 4);
  EXPECT_EQ(lower_data_parallel({8, 8, 8, 1}, 3).num_slots, 1);
  EXPECT_EQ(lower_data_parallel({64, 8, 8, 1}, 3).num_slots, 1) << "micro-batches of one leaf share a slot";
}

TEST(DataParallelProgram, ReadsLikeAList) {
  EXPECT_EQ(lower_data_parallel({4, 4, 2, 1}, 1).to_string(),
            "Forward micro-batch 2\nBackward micro-batch 2 -> slot 0\n"
            "Forward micro-batch 3\nBackward micro-batch 3 -> slot 1\n"
            "AddSlot group 0 slot 0 += slot 1\nAllReduce group 0\nOptimizerStep\n");
}

TEST(DataParallelProgram, RefusesWhatDoesNotDivide) {
  EXPECT_THROW(lower_data_parallel({8, 3, 1, 1}, 0), UsageError);
  EXPECT_THROW(lower_data_parallel({8, 8, 3, 1}, 0), UsageError);
  EXPECT_THROW(lower_data_parallel({8, 8, 2, 1}, 2), UsageError);
  EXPECT_THROW(lower_data_parallel({8, 8, 2, 1, {5, 2}}, 0), UsageError);
  EXPECT_THROW(lower_data_parallel({8, 8, 2, 1, {8, 0}}, 0), UsageError);
  EXPECT_THROW(lower_data_parallel({8, 8, 2, 1, {4, 2, 2}}, 0), UsageError);
}

/// Each damage to a good program is found.
TEST(CheckPrograms, NoticesDamage) {
  const DataParallelShape shape{12, 12, 2, 2};
  const std::vector<Program> good = all_ranks(shape);
  for (size_t at = 0; at < good[1].instructions.size(); ++at) {
    std::vector<Program> without = good;
    without[1].instructions.erase(without[1].instructions.begin() + static_cast<std::ptrdiff_t>(at));
    EXPECT_THROW(check_programs(without, 12), Error) << "without " << good[1].instructions[at].to_string();
    if (at + 1 == good[1].instructions.size()) continue;
    std::vector<Program> swapped = good;
    std::swap(swapped[1].instructions[at], swapped[1].instructions[at + 1]);
    const bool independent = good[1].instructions[at].op != good[1].instructions[at + 1].op ||
                             good[1].instructions[at].group != good[1].instructions[at + 1].group;
    if (!independent) {
      EXPECT_THROW(check_programs(swapped, 12), Error) << "swapped " << good[1].instructions[at].to_string();
    }
  }
  std::vector<Program> reordered = good;
  for (Instruction& instruction : reordered[0].instructions) {
    if (instruction.op == OpCode::kAllReduce) instruction.group = 1 - instruction.group;
  }
  EXPECT_THROW(check_programs(reordered, 12), Error) << "would deadlock";
  std::vector<Program> twice = good;
  twice[0] = good[1];
  EXPECT_THROW(check_programs(twice, 12), Error) << "micro-batches counted twice";
}

}  // namespace
}  // namespace trireme
