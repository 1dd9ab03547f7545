#include "trireme/simulate/step_lowering.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/program/pipeline.h"
#include "trireme/program/zero.h"

namespace trireme {
namespace {

double seconds_of(const BlockCost& block) { return block.forward + block.backward_input + block.backward_weight; }

}  // namespace

Partition cut_into_stages(const std::vector<BlockCost>& blocks, const Job& job, int num_stages,
                          std::vector<double> speeds) {
  const int count = static_cast<int>(blocks.size());
  Partition stages;
  const auto even = [&](int first, int last) {  // blocks first … last-1, and what is before and behind them
    const int each = (last - first) / num_stages;
    for (int stage = 0; stage < num_stages; ++stage) {
      stages.push_back(
          {stage == 0 ? 0 : first + stage * each, stage + 1 == num_stages ? count : first + (stage + 1) * each});
    }
    return stages;
  };
  if (job.model.is_language() && speeds.empty()) {
    if (job.model.layers % num_stages == 0) return even(1, count - 1);
    if (count % num_stages == 0) return even(0, count);
  }
  if (num_stages > count) {
    throw UsageError(fmt::format("{} pipeline stages for a model of {} blocks", num_stages, count),
                     "use fewer stages (parallel.pp times parallel.interleave)");
  }
  PartitionProblem problem{.num_stages = num_stages, .costs = {}, .speeds = std::move(speeds)};
  for (const BlockCost& block : blocks) {
    problem.costs.push_back(job.model.is_language() ? seconds_of(block) : block.model_flops);
  }
  return partition(problem);
}

std::vector<StageCost> stage_costs(const std::vector<BlockCost>& blocks, const Partition& stages, double bucket_bytes,
                                   double bytes_a_parameter) {
  std::vector<StageCost> costs;
  for (const LayerRange& range : stages) {
    StageCost cost{.blocks = range, .parts = {}, .sum = {}};
    double filled = bucket_bytes;
    for (int n = range.first; n < range.last; ++n) {
      const BlockCost& block = blocks[static_cast<size_t>(n)];
      if (filled >= bucket_bytes) {
        cost.parts.emplace_back();
        filled = 0;
      }
      filled += block.parameters * bytes_a_parameter;
      for (StagePart* part : {&cost.parts.back(), &cost.sum}) {
        part->forward += block.forward;
        part->backward_input += block.backward_input;
        part->backward_weight += block.backward_weight;
        part->parameters += block.parameters;
        part->expert_parameters += block.expert_parameters;
      }
      cost.exposed += block.exposed;
      cost.activation_bytes += block.activation_bytes;
      cost.working_bytes = std::max(cost.working_bytes, block.working_bytes);
      cost.forward_working_bytes = std::max(cost.forward_working_bytes, block.forward_working_bytes);
      cost.longest_tensor = std::max(cost.longest_tensor, block.longest_tensor);
    }
    costs.push_back(std::move(cost));
  }
  return costs;
}

Schedule schedule_of(const Job& job, const StageTimes& times) {
  const JobLayout& layout = job.layout;
  if (layout.own_schedule) return *layout.own_schedule;
  const bool interleaved = layout.schedule == ScheduleKind::k1F1B && layout.interleave > 1;
  return make_schedule({.kind = interleaved ? ScheduleKind::kInterleaved : layout.schedule,
                        .num_ranks = static_cast<int>(layout.pp),
                        .num_micro_batches = static_cast<int>(layout.num_micro_batches()),
                        .interleave = layout.interleave > 1 ? static_cast<int>(layout.interleave) : 0,
                        .times = times});
}

std::vector<Program> lower_step(const Job& job, const std::vector<StageCost>& stages, const Schedule& schedule,
                                bool fold) {
  const int64_t replicas = job.layout.num_replicas();
  PipelineShape shape{.schedule = schedule};
  shape.num_replicas = fold ? static_cast<int>(std::min<int64_t>(replicas, 2)) : static_cast<int>(replicas);
  shape.num_leaves = shape.num_replicas;  // a replica sums its micro-batches one after another
  for (const StageCost& stage : stages) shape.groups.push_back(static_cast<int>(stage.parts.size()));
  std::vector<Program> programs = fold ? lower_pipeline_ranks(shape) : lower_pipeline_all(shape);
  if (replicas == 1 && !job.layout.offload_weights) return programs;
  ZeroShape zero;
  zero.zero = static_cast<int>(job.layout.zero);
  zero.each_micro_batch = zero.zero > 1;
  for (Program& program : programs) program = share_over_replicas(std::move(program), zero);
  return programs;
}

}  // namespace trireme
