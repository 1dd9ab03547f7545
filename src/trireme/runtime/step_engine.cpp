#include "trireme/runtime/step_engine.h"

#include <algorithm>

#include "trireme/program/forward.h"

namespace trireme {

StepEngine::StepEngine(StepShape shape, const StepPlace& place, std::map<int, Stage> stages,
                       const ExecutorOptions& options)
    : place_(place),
      shape_(with_groups(std::move(shape), place, stages)),
      executor_(lower(shape_.update.exchange), std::move(stages), options) {
  const int stage = program().own_stages().front();
  for (const Instruction& i : program().instructions) {
    if (i.op == OpCode::kForward && i.stage == stage) micro_batches_.push_back(i.micro_batch);
  }
}

/// Of each stage how many groups there are, its values being the last, and how many of them replicas shard.
StepShape StepEngine::with_groups(StepShape shape, const StepPlace& place, const std::map<int, Stage>& stages) {
  const size_t count = shape.is_pipeline() ? shape.pipeline.schedule.rank_of_stage.size() : 1;
  std::vector<int32_t> groups(2 * count, 0);
  for (const auto& [number, stage] : stages) {
    const auto at = static_cast<size_t>(std::max(number, 0));
    const int of_store = stage.store ? stage.store->num_groups() : 0;
    groups[at] = std::max(1, of_store + (stage.num_values > 0 ? 1 : 0));
    for (int group = 0; group < of_store; ++group) groups[count + at] += stage.store->is_sharded(group);
  }
  if (place.sum_over_stages) place.sum_over_stages(groups);
  const auto sharded = groups.begin() + static_cast<std::ptrdiff_t>(count);
  shape.pipeline.groups.assign(groups.begin(), sharded);
  shape.zero.sharded_groups.assign(sharded, groups.end());
  return shape;
}

Program StepEngine::lower(GradientExchange exchange) {
  StepShape shape = shape_;
  shape.update.exchange = exchange;
  return checked_program(programs_of(shape), shape.pipeline.leaves(), place_.pipeline_rank, place_.replica, &report_);
}

void StepEngine::set_exchange(GradientExchange exchange) {
  const GradientExchange now = program().update.exchange;
  if (exchange == now) return;
  programs_.try_emplace(now, program());
  const auto known = programs_.find(exchange);
  executor_.set_program(known != programs_.end() ? known->second
                                                 : programs_.emplace(exchange, lower(exchange)).first->second);
}

void StepEngine::run_passes(int num_passes,
                            const std::function<std::unique_ptr<StageMessages>(const Program&)>& messages,
                            const Executor::Pass& pass) {
  Program& program = forward_programs_[num_passes];
  if (program.instructions.empty()) {
    // Their pattern repeats, so a few passes are proof enough of many.
    const int enough = std::min(num_passes, 2 * this->program().num_stages() + 2);
    check_programs(forward_programs_of(shape_, enough), 1);
    program = forward_program_of(shape_, num_passes, place_.pipeline_rank, place_.replica);
  }
  pass_messages_.push_back(messages(program));
  executor_.run_passes(program, pass_messages_.back().get(), pass);
  pass_messages_.pop_back();
}

}  // namespace trireme
