#include "trireme/config/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/units.h"
#include "trireme/config/recompute.h"
#include "trireme/config/value.h"
#include "trireme/program/check/check.h"
#include "trireme/program/pipeline.h"

namespace trireme {
namespace {

/// Stages per worker, for a built-in schedule.
int64_t stages_per_rank(const ParallelConfig& parallel) {
  return stages_per_rank(schedule_kind(parallel.schedule), parallel.interleave);
}

void check_stages(const Config& config, int64_t num_stages, int layers) {
  if (num_stages <= layers) return;
  const ParallelConfig& parallel = config.parallel;
  const int64_t most_workers =
      parallel.has_own_schedule() ? 0 : std::max<int64_t>(1, layers / stages_per_rank(parallel));
  throw wrong_key(
      "parallel.pp",
      fmt::format("{} with {} needs {}, but the model has {} to cut between", with_origin(config, "parallel.pp"),
                  with_origin(config, "parallel.schedule"), counted(num_stages, "stage"), counted(layers, "layer")),
      most_workers > 0 ? fmt::format("set parallel.pp to {} or less", most_workers)
                       : "take a schedule of fewer stages, or a deeper model");
}

/// What to change so that each replica has `wanted` micro-batches per step.
std::string micro_batches_cure(const Layout& layout, int64_t wanted) {
  std::string cure = fmt::format("set train.global_batch = {}", wanted * layout.micro_batch * layout.dp);
  const int64_t samples = layout.global_batch / layout.dp;
  if (samples % wanted == 0) cure += fmt::format(", or train.micro_batch = {}", samples / wanted);
  return cure;
}

}  // namespace

std::optional<ScheduleKind> named_schedule(const ParallelConfig& parallel) {
  return parallel.has_own_schedule() ? std::nullopt : std::optional(schedule_kind(parallel.schedule));
}

bool ParallelConfig::is_asynchronous() const {
  const auto kind = named_schedule(*this);
  return pp > 1 && kind && !is_synchronous(*kind);
}

bool splits_backward(const Schedule& schedule) {
  return std::any_of(schedule.ranks.begin(), schedule.ranks.end(), [](const std::vector<Instruction>& list) {
    return std::any_of(list.begin(), list.end(), [](const Instruction& i) { return i.op == OpCode::kWeightGrad; });
  });
}

Partition split_of(const Config& config, int layers) {
  if (config.parallel.split.empty()) return {};
  try {
    return partition_from_text(config.parallel.split, layers);
  } catch (const UsageError& error) {
    throw wrong_key("parallel.split", fmt::format("{}: {}", with_origin(config, "parallel.split"), error.what()));
  }
}

Partition pipeline_split(const Config& config, int num_stages, int layers) {
  check_stages(config, num_stages, layers);
  Partition partition = split_of(config, layers);
  if (partition.empty() || static_cast<int>(partition.size()) == num_stages) return partition;
  contradict(config, "parallel.split",
             fmt::format("has {} stages, and on {} workers there are {} with", partition.size(), config.parallel.pp,
                         num_stages),
             "parallel.schedule", fmt::format("name the layers of {} stages, of 0 to {}", num_stages, layers - 1));
}

void check_pipeline(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  if (parallel.pp == 1 || parallel.has_own_schedule() || config.model.is_own()) return;
  pipeline_split(config, static_cast<int>(parallel.pp * stages_per_rank(parallel)), num_layers(config.model));
}

void check_own_schedule(const Config& config, const Layout& layout) {
  const ParallelConfig& parallel = config.parallel;
  if (!parallel.has_own_schedule()) return;
  const Schedule& schedule = *layout.own_schedule;
  if (schedule.num_ranks != parallel.pp) {
    contradict(config, "parallel.schedule",
               fmt::format("has {}, one for each worker along the pipeline, but",
                           schedule.num_ranks == 1 ? "one row" : fmt::format("{} rows", schedule.num_ranks)),
               "parallel.pp",
               schedule.num_ranks == 1 ? fmt::format("write {} rows", parallel.pp)
                                       : fmt::format("set parallel.pp = {}", schedule.num_ranks));
  }
  if (schedule.num_micro_batches != layout.accumulation()) {
    throw wrong_key(
        "parallel.schedule",
        fmt::format("{} has {} micro-batches, but a replica has {} in a step: train.global_batch = {} in micro-batches "
                    "of {} over dp = {}",
                    with_origin(config, "parallel.schedule"), schedule.num_micro_batches, layout.accumulation(),
                    layout.global_batch, layout.micro_batch, layout.dp),
        micro_batches_cure(layout, schedule.num_micro_batches));
  }
  if (!parallel.stages.empty() && schedule.num_stages() != parallel.pp) {
    contradict(config, "parallel.stages", "are one for each worker, but several have", "parallel.schedule",
               "give each worker one stage in it");
  }
  if (!config.model.is_own()) pipeline_split(config, schedule.num_stages(), num_layers(config.model));
  try {
    const PipelineShape shape{.schedule = schedule, .recompute = {layout.recompute == RecomputeKind::kFull}};
    check_programs(lower_pipeline_ranks(shape), shape.leaves());
  } catch (const Error& error) {
    throw wrong_key("parallel.schedule", fmt::format("{}: {}", with_origin(config, "parallel.schedule"), error.what()));
  }
}

}  // namespace trireme
