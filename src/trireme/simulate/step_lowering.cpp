#include "trireme/simulate/step_lowering.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme {
namespace {

double seconds_of(const BlockCost& block) { return block.forward + block.backward_input + block.backward_weight; }

}  // namespace

Partition cut_into_stages(const std::vector<BlockCost>& blocks, const Job& job, int num_stages,
                          std::vector<double> speeds) {
  const int count = static_cast<int>(blocks.size());
  Partition stages;
  const auto even = [&](int first, int last) {  // blocks first … last-1; the end stages also get the blocks around them
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

StepShape played_shape(const Job& job, const std::vector<StageCost>& stages, const Schedule& schedule, bool fold) {
  const Layout& layout = job.layout;
  Layout played = layout;
  played.stages.clear();  // the lanes of a replica are simulated as one
  if (layout.cp > 1 || !layout.has_leaves()) {
    played.dp = fold ? std::min<int64_t>(layout.num_replicas(), 2) : layout.num_replicas();
    played.global_batch = layout.accumulation() * layout.micro_batch * played.dp;
    played.leaves = played.dp;
  }
  StepShape shape = step_shape(played, schedule);
  const int values = shape.update.exchange == GradientExchange::kSum ? 0 : 1;
  for (const StageCost& stage : stages) shape.pipeline.groups.push_back(static_cast<int>(stage.parts.size()) + values);
  if (job.model.is_language() && job.model.tied) {
    const int last = schedule.num_stages() - 1;
    shape.update.tied.push_back(layout.is_pipeline() ? TiedWeight{0, last} : TiedWeight());
  }
  return shape;
}

}  // namespace trireme
