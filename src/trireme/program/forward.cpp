#include "trireme/program/forward.h"

#include <algorithm>
#include <utility>

#include "trireme/base/index.h"
#include "trireme/program/interpreter.h"
#include "trireme/program/pipeline_parts.h"
#include "trireme/program/zero.h"

namespace trireme {
namespace {

constexpr int kReceiveAhead = 2;

/// Orders passes as a wavefront (by stage + micro-batch), so that the previous stage's output is always made one turn
/// earlier, whichever stages a rank holds.
Schedule forward_schedule(const Schedule& of_step, int num_passes) {
  Schedule schedule{.num_ranks = of_step.num_ranks, .num_micro_batches = num_passes};
  schedule.rank_of_stage = of_step.rank_of_stage;
  for (int rank = 0; rank < schedule.num_ranks; ++rank) {
    std::vector<Instruction>& order = schedule.ranks.emplace_back();
    for (const int stage : schedule.stages_of(rank)) {
      for (int pass = 0; pass < num_passes; ++pass) {
        order.push_back({.op = OpCode::kForward, .stage = stage, .micro_batch = pass});
      }
    }
    std::ranges::stable_sort(order, {}, [](const Instruction& i) { return i.stage + i.micro_batch; });
  }
  return schedule;
}

/// The program of a rank. `messages`: of the pipeline; null without one.
Program lower(const StepShape& shape, int num_passes, const Messages* messages, int pipeline_rank, int replica) {
  const PipelineShape& pipeline = shape.pipeline;
  Program program;
  program.num_micro_batches = num_passes * pipeline.num_replicas;
  program.num_updates = 0;
  program.num_ranks = pipeline.replicas_of(pipeline_rank);
  program.num_groups = pipeline.groups.empty() ? 1 : pipeline.groups.front();
  std::vector<Instruction> list;
  if (messages) {
    program.pipeline_rank = pipeline_rank;
    program.num_pipeline_ranks = pipeline.schedule.num_ranks;
    program.rank_of_stage = pipeline.schedule.rank_of_stage;
    program.replicas_of_rank = pipeline.replicas;
    program.groups_of_stage.assign(program.rank_of_stage.size(), program.num_groups);
    if (pipeline.groups.size() > 1) program.groups_of_stage = pipeline.groups;
    list = messages->of(pipeline_rank, kReceiveAhead);
  } else {
    for (int pass = 0; pass < num_passes; ++pass) list.push_back({.op = OpCode::kForward, .micro_batch = pass});
  }
  // A rank with several lanes does the work of each in turn ([Note: Lanes]).
  const int lanes = pipeline.num_replicas / program.num_ranks, first_lane = replica * lanes;
  for (auto turn = list.begin(); turn != list.end();) {
    const auto end = std::find_if(turn + 1, list.end(), [](const Instruction& i) { return !is_send(i.op); });
    for (int lane = first_lane; lane < first_lane + lanes; ++lane) {
      for (auto i = turn; i != end; ++i) {
        program.instructions.push_back(*i);
        program.instructions.back().micro_batch += lane * num_passes;
      }
    }
    turn = end;
  }
  ZeroShape zero = shape.zero;
  zero.keep = zero.each_micro_batch = false;  // there is no backward pass
  return shard_over_replicas(std::move(program), zero);
}

}  // namespace

Program forward_program_of(const StepShape& shape, int num_passes, int pipeline_rank, int replica) {
  if (!shape.is_pipeline()) return lower(shape, num_passes, nullptr, 0, replica);
  const Schedule schedule = forward_schedule(shape.pipeline.schedule, num_passes);
  const Messages messages(schedule);
  return lower(shape, num_passes, &messages, pipeline_rank, replica);
}

std::vector<Program> forward_programs_of(const StepShape& shape, int num_passes) {
  const bool is_pipeline = shape.is_pipeline();
  const Schedule schedule = is_pipeline ? forward_schedule(shape.pipeline.schedule, num_passes) : Schedule();
  std::optional<Messages> messages;
  if (is_pipeline) messages.emplace(schedule);
  const auto of = [&](int rank, int replica) {
    return lower(shape, num_passes, is_pipeline ? &*messages : nullptr, rank, replica);
  };
  std::vector<Program> programs = {of(0, 0)};
  const ProgramPlaces places(programs.front());
  for (size_t number = 1; number < places.count(); ++number) {
    programs.push_back(of(places.rank_of(number), places.replica_of(number)));
  }
  return programs;
}

}  // namespace trireme
