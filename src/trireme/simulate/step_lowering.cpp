#include "trireme/simulate/step_lowering.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/program/pipeline.h"

namespace trireme {
namespace {

double seconds_of(const BlockCost& block) { return block.forward + block.backward_input + block.backward_weight; }

/// Puts collectives of a ZeRO stage into a lowered program.
class ZeroLowering {
 public:
  ZeroLowering(int zero, Program program) : zero_(zero), program_(std::move(program)) {}

  Program run() {
    if (zero_ == 0) return std::move(program_);
    std::vector<Instruction> list;
    list.swap(program_.instructions);
    // The shares that were updated in the step before: gathered as they are first used.
    std::vector<bool> gathered(static_cast<size_t>(program_.num_stages()), false);
    for (const Instruction& i : list) {
      const bool first_use = i.op == OpCode::kForward && !gathered[static_cast<size_t>(i.stage)];
      const bool uses_weights = i.op == OpCode::kForward || makes_input_gradient(i.op);
      if (i.op == OpCode::kAllReduce) {
        if (zero_ == 1) put(OpCode::kReduceScatter, i.stage, i.group);
        continue;  // the others have scattered each micro-batch
      }
      if (zero_ == 3 ? uses_weights : first_use) gather(i);
      if (first_use) gathered[static_cast<size_t>(i.stage)] = true;
      program_.instructions.push_back(i);
      if (zero_ > 1 && makes_weight_gradient(i.op)) {
        for (int group = 0; group < program_.groups_of(i.stage); ++group) {
          put(OpCode::kReduceScatter, i.stage, group);
        }
      }
    }
    return std::move(program_);
  }

 private:
  void put(OpCode op, int stage, int group) {
    program_.instructions.push_back({.op = op, .stage = stage, .group = group});
  }
  void gather(const Instruction& use) {
    const int groups = program_.groups_of(use.stage);
    for (int n = 0; n < groups; ++n) {
      put(OpCode::kAllGather, use.stage, use.op == OpCode::kForward ? groups - 1 - n : n);
    }
  }

  const int zero_;
  Program program_;
};

}  // namespace

Partition cut_into_stages(const std::vector<BlockCost>& blocks, const Job& job, int num_stages) {
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
  if (job.model.is_language()) {
    if (job.model.layers % num_stages == 0) return even(1, count - 1);
    if (count % num_stages == 0) return even(0, count);
  }
  if (num_stages > count) {
    throw UsageError(fmt::format("{} pipeline stages for a model of {} blocks", num_stages, count),
                     "use fewer stages (parallel.pp times parallel.interleave)");
  }
  PartitionProblem problem{.num_stages = num_stages, .costs = {}};
  for (const BlockCost& block : blocks) problem.costs.push_back(seconds_of(block));
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
    }
    costs.push_back(std::move(cost));
  }
  return costs;
}

Schedule schedule_of(const Job& job, const StageTimes& times) {
  const JobLayout& layout = job.layout;
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
  if (replicas == 1) return programs;
  for (Program& program : programs) program = ZeroLowering(job.layout.zero, std::move(program)).run();
  return programs;
}

}  // namespace trireme
