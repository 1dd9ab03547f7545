#include "trireme/program/schedules/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "trireme/base/error.h"
#include "trireme/base/text.h"

namespace trireme {
namespace {

struct KindInfo {
  ScheduleKind kind;
  std::string_view name;
  std::string_view short_name = {};
  int stages_a_rank = 1;
  bool splits_backward = false;
  bool synchronous = true;
};

/// The one table of schedules, in the order of ScheduleKind.
constexpr KindInfo kKinds[] = {
    {.kind = ScheduleKind::kNaive, .name = "naive"},
    {.kind = ScheduleKind::kGPipe, .name = "gpipe"},
    {.kind = ScheduleKind::k1F1B, .name = "1f1b"},
    {.kind = ScheduleKind::kInterleaved, .name = "interleaved-1f1b", .short_name = "interleaved", .stages_a_rank = 2},
    {.kind = ScheduleKind::kZbH1, .name = "zb-h1", .splits_backward = true},
    {.kind = ScheduleKind::kZbH2, .name = "zb-h2", .splits_backward = true},
    {.kind = ScheduleKind::kZbV, .name = "zb-v", .stages_a_rank = 2, .splits_backward = true},
    {.kind = ScheduleKind::kPipeDream, .name = "pipedream", .synchronous = false},
    {.kind = ScheduleKind::kPipeDreamSync, .name = "pipedream-vertical-sync", .synchronous = false},
    {.kind = ScheduleKind::kPipeDream2Bw, .name = "pipedream-2bw", .synchronous = false},
    {.kind = ScheduleKind::kPipeDreamFlush, .name = "pipedream-flush"},
};

static_assert(
    [] {
      for (size_t i = 0; i < std::size(kKinds); ++i) {
        if (kKinds[i].kind != static_cast<ScheduleKind>(i)) return false;
      }
      return true;
    }(),
    "rows have the order of ScheduleKind");

const KindInfo& info_of(ScheduleKind kind) { return kKinds[static_cast<size_t>(kind)]; }

constexpr int kMostRanks = 4096, kMostMicroBatches = 1 << 20;

void check(const ScheduleShape& shape) {
  const auto in_range = [](const char* what, int value, int most) {
    if (value >= 1 && value <= most) return;
    throw UsageError(fmt::format("a pipeline of {} {} cannot be", value, what), fmt::format("give 1 to {}", most));
  };
  in_range("ranks", shape.num_ranks, kMostRanks);
  in_range("micro-batches", shape.num_micro_batches, kMostMicroBatches);
  const int fixed = stages_a_rank(shape.kind);
  if (shape.kind == ScheduleKind::kInterleaved) {
    if (shape.interleave != 0) in_range("stages a rank", shape.interleave, 1000);
  } else if (shape.interleave != 0 && shape.interleave != fixed) {
    throw UsageError(fmt::format("{} has {} a rank, not {}", name_of(shape.kind),
                                 fixed == 2 ? "two stages" : "one stage", shape.interleave),
                     fmt::format("{} takes any number of stages a rank", name_of(ScheduleKind::kInterleaved)));
  }
  if (shape.update_every < 0 || (shape.update_every > 0 && shape.num_micro_batches % shape.update_every != 0)) {
    throw UsageError(fmt::format("{} micro-batches are no whole number of updates of {}", shape.num_micro_batches,
                                 shape.update_every));
  }
  if (is_synchronous(shape.kind) && shape.update_every != 0 && shape.update_every != shape.num_micro_batches) {
    throw UsageError(fmt::format("{} updates the weights once, after all {} micro-batches", name_of(shape.kind),
                                 shape.num_micro_batches),
                     "pipedream and pipedream-2bw update them while micro-batches are under way");
  }
}

/// Default of PipeDream-2BW: the smallest divisor of num_micro_batches that is at least num_ranks, to keep the pipeline
/// full; all of them if there is none.
int double_buffer_update(int num_ranks, int num_micro_batches) {
  for (int every = std::min(num_ranks, num_micro_batches); every < num_micro_batches; ++every) {
    if (num_micro_batches % every == 0) return every;
  }
  return num_micro_batches;
}

}  // namespace

std::vector<int> Schedule::stages_of(int rank) const {
  std::vector<int> stages;
  for (int stage = 0; stage < num_stages(); ++stage) {
    if (rank_of_stage[static_cast<size_t>(stage)] == rank) stages.push_back(stage);
  }
  return stages;
}

bool Schedule::has_messages() const {
  return std::any_of(ranks.begin(), ranks.end(), [](const std::vector<Instruction>& list) {
    return std::any_of(list.begin(), list.end(),
                       [](const Instruction& i) { return is_send(i.op) || is_receive(i.op); });
  });
}

const std::vector<ScheduleKind>& schedule_kinds() {
  static const std::vector<ScheduleKind> all = [] {
    std::vector<ScheduleKind> kinds;
    for (const KindInfo& info : kKinds) kinds.push_back(info.kind);
    return kinds;
  }();
  return all;
}

std::string_view name_of(ScheduleKind kind) { return info_of(kind).name; }

std::vector<std::string_view> schedule_names() {
  std::vector<std::string_view> names;
  for (const KindInfo& info : kKinds) {
    names.push_back(info.name);
    if (!info.short_name.empty()) names.push_back(info.short_name);
  }
  return names;
}

ScheduleKind schedule_kind(std::string_view name) {
  for (const KindInfo& info : kKinds) {
    if (name == info.name || (!name.empty() && name == info.short_name)) return info.kind;
  }
  const std::vector<std::string_view> names = schedule_names();
  const auto meant = nearest(name, names);
  throw UsageError(
      fmt::format("there is no schedule '{}'", name),
      fmt::format("{}there are {}", meant ? fmt::format("did you mean {}? ", *meant) : "", join(names, ", ")));
}

bool is_synchronous(ScheduleKind kind) { return info_of(kind).synchronous; }
bool splits_backward(ScheduleKind kind) { return info_of(kind).splits_backward; }
int stages_a_rank(ScheduleKind kind) { return info_of(kind).stages_a_rank; }
ScheduleKind with_interleave(ScheduleKind kind, int64_t interleave) {
  return kind == ScheduleKind::k1F1B && interleave > 1 ? ScheduleKind::kInterleaved : kind;
}

std::vector<int> place_in_rounds(int num_ranks, int interleave) {
  std::vector<int> rank_of_stage;
  for (int stage = 0; stage < num_ranks * interleave; ++stage) rank_of_stage.push_back(stage % num_ranks);
  return rank_of_stage;
}

std::vector<int> place_in_v(int num_ranks) {
  std::vector<int> rank_of_stage;
  for (int stage = 0; stage < 2 * num_ranks; ++stage) {
    rank_of_stage.push_back(stage < num_ranks ? stage : 2 * num_ranks - 1 - stage);
  }
  return rank_of_stage;
}

Schedule make_schedule(const ScheduleShape& shape) {
  check(shape);
  const int num_ranks = shape.num_ranks, count = shape.num_micro_batches;
  const int interleave = shape.kind == ScheduleKind::kInterleaved
                             ? (shape.interleave == 0 ? stages_a_rank(shape.kind) : shape.interleave)
                             : 1;
  Schedule schedule{.num_ranks = num_ranks, .num_micro_batches = count};
  schedule.rank_of_stage =
      shape.kind == ScheduleKind::kZbV ? place_in_v(num_ranks) : place_in_rounds(num_ranks, interleave);
  const int num_stages = schedule.num_stages();

  if (shape.kind == ScheduleKind::kZbV) {
    const StageTimes times = shape.times.forward.empty() ? StageTimes::equal(num_stages, 1, 1, 1, 0)
                                                         : spread_over_stages(shape.times, schedule.rank_of_stage);
    schedule.ranks = orders_zero_bubble_v(num_ranks, count, times);
    return schedule;
  }
  if (shape.kind == ScheduleKind::kPipeDream || shape.kind == ScheduleKind::kPipeDreamSync) {
    schedule.update_every = shape.update_every == 0 ? 1 : shape.update_every;
    schedule.weights = shape.kind == ScheduleKind::kPipeDream ? WeightRule::kStash : WeightRule::kVerticalSync;
  } else if (shape.kind == ScheduleKind::kPipeDream2Bw) {
    schedule.update_every = shape.update_every == 0 ? double_buffer_update(num_ranks, count) : shape.update_every;
    schedule.weights = WeightRule::kDoubleBuffer;
  }
  for (int rank = 0; rank < num_ranks; ++rank) {
    const int to_come = num_ranks - rank;  // stages from this one on
    switch (shape.kind) {
      case ScheduleKind::kNaive:
        schedule.ranks.push_back(order_naive(rank, count));
        break;
      case ScheduleKind::kGPipe:
        schedule.ranks.push_back(order_gpipe(rank, count));
        break;
      case ScheduleKind::kInterleaved:
        schedule.ranks.push_back(order_interleaved(rank, num_ranks, count, interleave));
        break;
      case ScheduleKind::kZbH1:
        schedule.ranks.push_back(order_zero_bubble(rank, count, to_come, rank));
        break;
      case ScheduleKind::kZbH2:
        schedule.ranks.push_back(order_zero_bubble(rank, count, 2 * to_come - 1, 2 * rank));
        break;
      case ScheduleKind::kPipeDream2Bw:  // so a version is complete before the first forward pass that needs it
        schedule.ranks.push_back(order_1f1b(rank, count, std::min(to_come, schedule.update_every)));
        break;
      case ScheduleKind::k1F1B:
      case ScheduleKind::kPipeDream:
      case ScheduleKind::kPipeDreamSync:
      case ScheduleKind::kPipeDreamFlush:
        schedule.ranks.push_back(order_1f1b(rank, count, to_come));
        break;
      case ScheduleKind::kZbV:  // handled above, for all ranks at once
        break;
    }
  }
  return schedule;
}

}  // namespace trireme
