#include "trireme/config/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/units.h"
#include "trireme/config/value.h"
#include "trireme/program/check/check.h"
#include "trireme/program/pipeline.h"
#include "trireme/program/schedules/schedule_csv.h"

namespace trireme {
namespace {

/// Of a named schedule.
int64_t stages_of_worker(const ParallelConfig& parallel) {
  if (parallel.interleave > 1) return parallel.interleave;
  return stages_a_rank(schedule_kind(parallel.schedule));
}

/// Some parts of the model differentiate inside their backward pass: no half of it can be left for later.
void refuse_halves(const Config& config) {
  if (config.train.recompute != "none" && config.train.recompute != "full") {
    contradict(config, "train.recompute", "differentiates inside the backward pass, which is cut in two by",
               "parallel.schedule", "set train.recompute to full: stages are computed again as a whole");
  }
  if (config.parallel.zero == 3) {
    contradict(config, "parallel.zero", "frees weights behind each layer, and the later half of the backward pass of",
               "parallel.schedule", "would gather them a third time: take 1f1b, or parallel.zero = 2");
  }
}

void check_stages(const Config& config, int64_t num_stages, int64_t most_workers) {
  const int layers = num_layers(config.model);
  if (num_stages <= layers) return;
  throw UsageError(
      fmt::format("{} with {} needs {}, but the model has {} to cut between", with_origin(config, "parallel.pp"),
                  with_origin(config, "parallel.schedule"), counted(num_stages, "stage"), counted(layers, "layer")),
      most_workers > 0 ? fmt::format("set parallel.pp to {} or less", most_workers)
                       : "take a schedule of fewer stages, or a deeper model");
}

/// What to change so that a step has so many micro-batches on each replica.
std::string micro_batches_cure(const BatchPlan& plan, int64_t wanted) {
  std::string cure = fmt::format("set train.global_batch = {}", wanted * plan.micro_batch * plan.dp);
  const int64_t samples = plan.global_batch / plan.dp;
  if (samples % wanted == 0) cure += fmt::format(", or train.micro_batch = {}", samples / wanted);
  return cure;
}

}  // namespace

bool ParallelConfig::is_asynchronous() const {
  return pp > 1 && !has_own_schedule() && !is_synchronous(schedule_kind(schedule));
}

int num_layers(const ModelConfig& model) {
  // A file may say anything, and is refused later.
  const int layers = static_cast<int>(std::clamp<int64_t>(model.layers, 0, std::numeric_limits<int>::max() - 2));
  if (model.is_language()) return layers + 2;
  if (model.kind == ModelKind::kMlp) return layers + 1;
  return 2 + (model.depth == 18 ? 8 : model.depth == 101 ? 33 : 16);
}

Schedule pipeline_schedule(const Config& config, const BatchPlan& plan) {
  const ParallelConfig& parallel = config.parallel;
  if (parallel.has_own_schedule()) return read_schedule(parallel.schedule);
  const ScheduleKind asked = schedule_kind(parallel.schedule);
  const bool interleaves = parallel.interleave > 1 && asked == ScheduleKind::k1F1B;
  return make_schedule({.kind = interleaves ? ScheduleKind::kInterleaved : asked,
                        .num_ranks = static_cast<int>(parallel.pp),
                        .num_micro_batches = static_cast<int>(plan.accumulation),
                        .interleave = parallel.interleave > 1 ? static_cast<int>(parallel.interleave) : 0,
                        .update_every = static_cast<int>(parallel.update_every)});
}

bool splits_backward(const Schedule& schedule) {
  return std::any_of(schedule.ranks.begin(), schedule.ranks.end(), [](const std::vector<Instruction>& list) {
    return std::any_of(list.begin(), list.end(), [](const Instruction& i) { return i.op == OpCode::kWeightGrad; });
  });
}

Partition pipeline_split(const Config& config, int num_stages) {
  const std::string& text = config.parallel.split;
  if (text.empty()) return {};
  const int layers = num_layers(config.model);
  Partition partition;
  try {
    partition = partition_from_text(text, layers);
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("{}: {}", with_origin(config, "parallel.split"), error.what()));
  }
  if (static_cast<int>(partition.size()) == num_stages) return partition;
  contradict(config, "parallel.split",
             fmt::format("has {} stages, and on {} workers there are {} with", partition.size(), config.parallel.pp,
                         num_stages),
             "parallel.schedule", fmt::format("name the layers of {} stages, of 0 to {}", num_stages, layers - 1));
}

void check_pipeline(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  if (parallel.pp == 1) {
    if (!parallel.split.empty()) {
      contradict(config, "parallel.split", "cuts the model into stages, but", "parallel.pp",
                 "set parallel.pp to their number");
    }
    if (parallel.has_own_schedule()) {
      contradict(config, "parallel.schedule", "orders the work of a pipeline, but", "parallel.pp",
                 "set parallel.pp to the number of its rows");
    }
    return;
  }
  const auto kind = parallel.has_own_schedule() ? std::nullopt : std::optional(schedule_kind(parallel.schedule));
  const bool interleaves = kind == ScheduleKind::kInterleaved || kind == ScheduleKind::k1F1B;
  if (parallel.interleave > 1 && !interleaves) {
    contradict(config, "parallel.interleave", "is not for", "parallel.schedule", "set the schedule to interleaved");
  }
  if (!kind) return;
  const int64_t of_worker = stages_of_worker(parallel);
  check_stages(config, parallel.pp * of_worker, std::max<int64_t>(1, num_layers(config.model) / of_worker));
  pipeline_split(config, static_cast<int>(parallel.pp * of_worker));
  if (splits_backward(*kind)) refuse_halves(config);
}

void check_own_schedule(const Config& config, const BatchPlan& plan) {
  const ParallelConfig& parallel = config.parallel;
  if (!parallel.has_own_schedule()) return;
  const Schedule schedule = pipeline_schedule(config, plan);
  if (schedule.num_ranks != parallel.pp) {
    contradict(config, "parallel.schedule",
               fmt::format("has {}, one for each worker along the pipeline, but",
                           schedule.num_ranks == 1 ? "one row" : fmt::format("{} rows", schedule.num_ranks)),
               "parallel.pp",
               schedule.num_ranks == 1 ? fmt::format("write {} rows", parallel.pp)
                                       : fmt::format("set parallel.pp = {}", schedule.num_ranks));
  }
  if (schedule.num_micro_batches != plan.accumulation) {
    throw UsageError(
        fmt::format("{} has {} micro-batches, but a replica has {} in a step: train.global_batch = {} in micro-batches "
                    "of {} over dp = {}",
                    with_origin(config, "parallel.schedule"), schedule.num_micro_batches, plan.accumulation,
                    plan.global_batch, plan.micro_batch, plan.dp),
        micro_batches_cure(plan, schedule.num_micro_batches));
  }
  if (!parallel.stages.empty() && schedule.num_stages() != parallel.pp) {
    contradict(config, "parallel.stages", "are one for each worker, but several have", "parallel.schedule",
               "give each worker one stage in it");
  }
  check_stages(config, schedule.num_stages(), 0);
  pipeline_split(config, schedule.num_stages());
  if (splits_backward(schedule)) refuse_halves(config);
  try {
    const PipelineShape shape{.schedule = schedule, .recompute = {config.train.recompute == "full"}};
    check_programs(lower_pipeline_ranks(shape), shape.leaves());
  } catch (const Error& error) {
    throw UsageError(fmt::format("{}: {}", with_origin(config, "parallel.schedule"), error.what()));
  }
}

}  // namespace trireme
