#include "trireme/program/schedules/schedule.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/enum_table.h"
#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"

namespace trireme {
namespace {

struct KindInfo {
  ScheduleKind kind;
  std::string_view name;
  std::string_view short_name = {};
  int stages_per_rank = 1;
  bool takes_interleave = false;
  StagePlacement placement = StagePlacement::kRounds;
  bool splits_backward = false;
  bool depends_on_times = false;
  WeightRule weights = WeightRule::kNewest;
};

/// The one table of schedules.
constexpr KindInfo kKinds[] = {
    {.kind = ScheduleKind::kNaive, .name = "naive"},
    {.kind = ScheduleKind::kGPipe, .name = "gpipe"},
    {.kind = ScheduleKind::k1F1B, .name = "1f1b"},
    {.kind = ScheduleKind::kInterleaved,
     .name = "interleaved-1f1b",
     .short_name = "interleaved",
     .stages_per_rank = 2,
     .takes_interleave = true},
    {.kind = ScheduleKind::kZbH1, .name = "zb-h1", .splits_backward = true},
    {.kind = ScheduleKind::kZbH2, .name = "zb-h2", .splits_backward = true},
    {.kind = ScheduleKind::kZbV,
     .name = "zb-v",
     .stages_per_rank = 2,
     .placement = StagePlacement::kV,
     .splits_backward = true,
     .depends_on_times = true},
    {.kind = ScheduleKind::kPipeDream, .name = "pipedream", .weights = WeightRule::kStash},
    {.kind = ScheduleKind::kPipeDreamSync, .name = "pipedream-vertical-sync", .weights = WeightRule::kVerticalSync},
    {.kind = ScheduleKind::kPipeDream2Bw, .name = "pipedream-2bw", .weights = WeightRule::kDoubleBuffer},
    {.kind = ScheduleKind::kPipeDreamFlush, .name = "pipedream-flush"},
};
static_assert(has_row_of_each(kKinds, &KindInfo::kind), "one row per ScheduleKind, in its order");

const KindInfo& info_of(ScheduleKind kind) { return kKinds[static_cast<size_t>(kind)]; }

constexpr int kMostRanks = 4096, kMostMicroBatches = 1 << 20;

void check(const ScheduleShape& shape) {
  const auto in_range = [](const char* what, int value, int most) {
    if (value >= 1 && value <= most) return;
    throw UsageError(fmt::format("a pipeline of {} {} cannot be", value, what), fmt::format("give 1 to {}", most));
  };
  in_range("ranks", shape.num_ranks, kMostRanks);
  in_range("micro-batches", shape.num_micro_batches, kMostMicroBatches);
  const int fixed = stages_per_rank(shape.kind);
  if (takes_interleave(shape.kind)) {
    if (shape.interleave != 0) in_range("stages per rank", shape.interleave, 1000);
  } else if (shape.interleave != 0 && shape.interleave != fixed) {
    throw UsageError(
        fmt::format("{} has {} per rank, not {}", name_of(shape.kind), counted(fixed, "stage"), shape.interleave),
        fmt::format("{} takes any number of stages per rank", name_of(ScheduleKind::kInterleaved)));
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

/// Micro-batches per update where the shape names none; 0: all.
int default_update_every(WeightRule rule, int num_ranks, int num_micro_batches) {
  if (rule == WeightRule::kNewest) return 0;
  if (rule != WeightRule::kDoubleBuffer) return 1;
  // The smallest divisor of num_micro_batches that keeps the pipeline full.
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

WeightRule weight_rule(ScheduleKind kind) { return info_of(kind).weights; }
bool is_synchronous(ScheduleKind kind) { return weight_rule(kind) == WeightRule::kNewest; }
bool splits_backward(ScheduleKind kind) { return info_of(kind).splits_backward; }
StagePlacement placement_of(ScheduleKind kind) { return info_of(kind).placement; }
bool depends_on_times(ScheduleKind kind) { return info_of(kind).depends_on_times; }
bool takes_interleave(ScheduleKind kind) { return info_of(kind).takes_interleave; }
int stages_per_rank(ScheduleKind kind, int64_t interleave) {
  return interleave > 1 ? static_cast<int>(interleave) : info_of(kind).stages_per_rank;
}
ScheduleKind with_interleave(ScheduleKind kind, int64_t interleave) {
  return kind == ScheduleKind::k1F1B && interleave > 1 ? ScheduleKind::kInterleaved : kind;
}

std::vector<int> place_in_rounds(int num_ranks, int stages_per_rank) {
  std::vector<int> rank_of_stage;
  for (int stage = 0; stage < num_ranks * stages_per_rank; ++stage) rank_of_stage.push_back(stage % num_ranks);
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
  // An interleave of 1 is not the default here: it is one stage per rank.
  const int num_own = shape.interleave > 0 ? shape.interleave : stages_per_rank(shape.kind);
  Schedule schedule{.num_ranks = num_ranks, .num_micro_batches = count, .weights = weight_rule(shape.kind)};
  schedule.rank_of_stage =
      placement_of(shape.kind) == StagePlacement::kV ? place_in_v(num_ranks) : place_in_rounds(num_ranks, num_own);
  if (schedule.weights != WeightRule::kNewest) {
    schedule.update_every =
        shape.update_every > 0 ? shape.update_every : default_update_every(schedule.weights, num_ranks, count);
  }
  if (shape.kind == ScheduleKind::kZbV) {  // the one kind whose ranks are ordered together
    const StageTimes times = shape.times.forward.empty() ? StageTimes::equal(schedule.num_stages(), 1, 1, 1, 0)
                                                         : spread_over_stages(shape.times, schedule.rank_of_stage);
    schedule.ranks = orders_zero_bubble_v(num_ranks, count, times);
    return schedule;
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
        schedule.ranks.push_back(order_interleaved(rank, num_ranks, count, num_own));
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
