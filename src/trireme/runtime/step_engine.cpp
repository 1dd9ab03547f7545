#include "trireme/runtime/step_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "trireme/base/error.h"
#include "trireme/base/index.h"
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

/// Adds the number of groups of each stage, its values as the last one, and how many of them replicas shard.
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

StepTimes StepEngine::stream(const ScheduleShape& schedule, int num_micro_batches, const Executor::Update& update) {
  const PipelineShape& shape = shape_.pipeline;
  const auto same = [&](const ScheduleShape& other) {
    return std::tie(schedule.kind, schedule.num_ranks, schedule.update_every) ==
           std::tie(other.kind, other.num_ranks, other.update_every);
  };
  if (!stream_ || !same(stream_schedule_)) {
    stream_schedule_ = schedule;
    // Longer streams repeat the same round, so checking two rounds is enough.
    std::vector<Program> programs;
    for (int replica = 0; replica < shape.num_replicas; ++replica) {
      const std::vector<Stream> streams = streams_of(shape, schedule, replica);
      for (const Stream& each : streams) programs.push_back(each.unrolled(2));
      if (replica == place_.replica) stream_ = streams[at(place_.pipeline_rank)];
    }
    check_programs(programs, shape.leaves());
  }
  const int least = stream_->num_micro_batches(0) / shape.num_replicas;
  const int round = stream_->micro_batches_per_round / shape.num_replicas;
  if (num_micro_batches < least || (num_micro_batches - least) % round != 0) {
    throw UsageError(
        fmt::format("a stream of {} cannot have {} micro-batches", name_of(schedule.kind), num_micro_batches),
        fmt::format("give {}, or any multiple of {} more", least, round));
  }
  return executor_.run(*stream_, (num_micro_batches - least) / round, update);
}

void StepEngine::run_passes(int num_passes,
                            const std::function<std::unique_ptr<StageMessages>(const Program&)>& messages,
                            const Executor::Pass& pass) {
  Program& program = forward_programs_[num_passes];
  if (program.instructions.empty()) {
    // The pattern of passes repeats, so checking a few is enough.
    const int enough = std::min(num_passes, 2 * this->program().num_stages() + 2);
    check_programs(forward_programs_of(shape_, enough), 1);
    program = forward_program_of(shape_, num_passes, place_.pipeline_rank, place_.replica);
  }
  pass_messages_.push_back(messages(program));
  executor_.run_passes(program, pass_messages_.back().get(), pass);
  pass_messages_.pop_back();
}

}  // namespace trireme
