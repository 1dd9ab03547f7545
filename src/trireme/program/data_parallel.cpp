#include "trireme/program/data_parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "trireme/base/error.h"

namespace trireme {
namespace {

LeafRange leaves_of(const DataParallelShape& shape, int rank) {
  if (!shape.batch_parts.empty()) {
    const auto own = shape.batch_parts.begin() + rank;
    const int first = std::accumulate(shape.batch_parts.begin(), own, 0);
    return {first, first + *own};
  }
  const int count = shape.num_leaves / shape.num_ranks;
  return {rank * count, (rank + 1) * count};
}

CrossRankSum sum_across_ranks(const DataParallelShape& shape) {
  CrossRankSum across;
  across.direct = shape.batch_parts.empty() && ranks_are_branches(shape.num_leaves, shape.num_ranks);
  if (across.direct) return across;
  std::vector<LeafRange> partials;
  for (int rank = 0; rank < shape.num_ranks; ++rank) {
    const LeafSchedule schedule = schedule_leaves(shape.num_leaves, leaves_of(shape, rank));
    partials.insert(partials.end(), schedule.partials.begin(), schedule.partials.end());
    across.partials_of_rank.push_back(static_cast<int>(schedule.partials.size()));
  }
  across.additions = finish_tree(shape.num_leaves, partials);
  return across;
}

void check(const DataParallelShape& shape, int rank) {
  const std::vector<int>& batch_parts = shape.batch_parts;
  const bool fits = batch_parts.empty()
                        ? shape.num_ranks > 0 && shape.num_leaves % shape.num_ranks == 0
                        : std::ssize(batch_parts) == shape.num_ranks && std::ranges::min(batch_parts) > 0 &&
                              std::accumulate(batch_parts.begin(), batch_parts.end(), 0) == shape.num_leaves;
  if (!fits || shape.num_groups < 1 || shape.num_leaves < 1 || shape.num_micro_batches % shape.num_leaves != 0) {
    throw UsageError(
        fmt::format("{} micro-batches in {} leaves cannot be split over {} ranks", shape.num_micro_batches,
                    shape.num_leaves, shape.num_ranks),
        "leaves must divide micro-batches, and ranks must divide leaves or have shares that add up to them");
  }
  const LeafRange own = rank < 0 || rank >= shape.num_ranks ? LeafRange() : leaves_of(shape, rank);
  if (shape.lanes < 1 || (own.last - own.first) % shape.lanes != 0) {
    throw UsageError(
        fmt::format("{} leaves of a rank cannot be split over {} lanes", own.last - own.first, shape.lanes));
  }
  if (rank < 0 || rank >= shape.num_ranks) {
    throw UsageError(fmt::format("rank {} is outside of 0 … {}", rank, shape.num_ranks - 1));
  }
}

Program lower(const DataParallelShape& shape, const DataParallelSums& sums) {
  Program program;
  program.num_micro_batches = shape.num_micro_batches;
  program.num_groups = shape.num_groups;
  program.num_ranks = shape.num_ranks;
  program.across = sums.across;

  const int leaf_size = shape.num_micro_batches / shape.num_leaves;
  const LeafSchedule& schedule = sums.leaves;
  program.num_slots = schedule.num_slots;
  std::vector<Instruction>& list = program.instructions;
  for (const LeafStep& step : schedule.steps) {
    for (int i = 0; i < leaf_size; ++i) {
      const int micro_batch = step.leaf * leaf_size + i;
      list.push_back({.op = OpCode::kForward, .micro_batch = micro_batch});
      list.push_back({.op = OpCode::kBackward, .micro_batch = micro_batch, .slot = step.slot, .add = i > 0});
    }
    const bool last = &step == &schedule.steps.back();
    for (int group = 0; group < shape.num_groups; ++group) {
      for (const Addition& addition : step.additions) {
        list.push_back({.op = OpCode::kAddSlot, .slot = addition.into, .from_slot = addition.from, .group = group});
      }
      if (last && shape.num_ranks > 1) list.push_back({.op = OpCode::kAllReduce, .group = group});
    }
  }
  list.push_back({.op = OpCode::kOptimizerStep});
  return program;
}

}  // namespace

DataParallelSums sums_of(const DataParallelShape& shape, int rank) {
  check(shape, rank);
  return {schedule_leaves(shape.num_leaves, leaves_of(shape, rank), shape.lanes), sum_across_ranks(shape)};
}

Program lower_data_parallel(const DataParallelShape& shape, int rank) { return lower(shape, sums_of(shape, rank)); }

std::vector<Program> lower_data_parallel_all(const DataParallelShape& shape) {
  check(shape, 0);
  const CrossRankSum across = sum_across_ranks(shape);
  std::vector<Program> programs;
  for (int rank = 0; rank < shape.num_ranks; ++rank) {
    programs.push_back(lower(shape, {schedule_leaves(shape.num_leaves, leaves_of(shape, rank)), across}));
  }
  return programs;
}

}  // namespace trireme
