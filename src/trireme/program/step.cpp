#include "trireme/program/step.h"

#include <algorithm>

#include "trireme/program/data_parallel.h"
#include "trireme/program/interpreter.h"
#include "trireme/program/update.h"
#include "trireme/program/zero.h"

namespace trireme {
namespace {

DataParallelShape without_pipeline(const StepShape& shape) {
  const PipelineShape& p = shape.pipeline;
  return {shape.num_micro_batches, p.num_leaves, p.num_replicas, p.groups.empty() ? 1 : p.groups.front(),
          shape.batch_parts};
}

Program with_zero(Program program, ZeroShape zero) {
  const std::vector<int>& groups = zero.sharded_groups;
  if (!groups.empty() && std::ranges::max(groups) == 0) return program;
  zero.each_micro_batch &= program.num_ranks > 1;
  return shard_over_replicas(std::move(program), zero);
}

}  // namespace

Program program_of(const StepShape& shape, int pipeline_rank, int replica) {
  Program program = shape.is_pipeline() ? lower_pipeline(shape.pipeline, pipeline_rank, replica)
                                        : lower_data_parallel(without_pipeline(shape), replica);
  return with_update(with_zero(std::move(program), shape.zero), shape.update, replica);
}

std::vector<Program> programs_of(const StepShape& shape, std::optional<int> replica) {
  std::vector<Program> programs;
  if (shape.is_pipeline()) {
    programs = replica ? lower_pipeline_ranks(shape.pipeline, *replica) : lower_pipeline_all(shape.pipeline);
  } else if (replica) {
    programs.push_back(lower_data_parallel(without_pipeline(shape), *replica));
  } else {
    programs = lower_data_parallel_all(without_pipeline(shape));
  }
  const ProgramPlaces places(programs.front());
  for (size_t number = 0; number < programs.size(); ++number) {
    programs[number] = with_update(with_zero(std::move(programs[number]), shape.zero), shape.update,
                                   replica ? *replica : places.replica_of(number));
  }
  return programs;
}

}  // namespace trireme
