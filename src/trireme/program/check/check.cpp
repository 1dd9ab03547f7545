#include "trireme/program/check/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "trireme/base/error.h"
#include "trireme/base/index.h"
#include "trireme/program/check/check_rank.h"

namespace trireme {
namespace {

void check_alike(const std::vector<Program>& programs, int num_leaves) {
  if (programs.empty()) throw Error("there are no programs to check");
  const Program& first = programs.front();
  const auto num_pipelines = static_cast<size_t>(first.num_pipeline_ranks);
  if (num_leaves < 1 || first.num_updates < 0 ||
      first.num_micro_batches % (std::max(first.num_updates, 1) * num_leaves) != 0) {
    throw Error(fmt::format("{} micro-batches in {} updates of {} leaves do not divide", first.num_micro_batches,
                            first.num_updates, num_leaves));
  }
  if (programs.size() != ProgramPlaces(first).count()) {
    throw Error(fmt::format("{} programs for {} of a pipeline of {} ranks", programs.size(),
                            first.replicas_of_rank.empty() ? fmt::format("{} replicas", first.num_ranks)
                                                           : fmt::format("{} lanes", first.num_lanes()),
                            num_pipelines));
  }
  const ProgramPlaces places(first);
  for (size_t number = 0; number < programs.size(); ++number) {
    const Program& program = programs[number];
    const int rank = places.rank_of(number);
    const Program& alike = programs[places.number_of(rank, 0)];
    if (program.num_groups != alike.num_groups || program.groups_of_stage.size() != program.rank_of_stage.size() ||
        program.groups_of_stage != first.groups_of_stage || program.num_micro_batches != first.num_micro_batches ||
        program.across != alike.across || program.num_updates != first.num_updates ||
        program.rank_of_stage != first.rank_of_stage || program.replicas_of_rank != first.replicas_of_rank ||
        program.update != first.update || program.num_ranks != first.replicas_of(rank) ||
        program.pipeline_rank != rank || program.zero != alike.zero) {
      throw Error(fmt::format("program of rank {}: it is made for another layout than that of rank 0", number));
    }
  }
}

}  // namespace

CheckReport check_programs(const std::vector<Program>& programs, int num_leaves, const CheckOptions& options) {
  check_alike(programs, num_leaves);
  const Program& first = programs.front();
  const SumTree tree(first.num_micro_batches / std::max(first.num_updates, 1), num_leaves);
  Channels channels;
  std::deque<Replicas> replicas;
  const ProgramPlaces places(first);
  for (int rank = 0; rank < first.num_pipeline_ranks; ++rank) {
    replicas.emplace_back(first.replicas_of(rank), tree, programs[places.number_of(rank, 0)].across);
  }
  Interpreter interpreter(programs, {.sends_under_way = options.sends_under_way});
  std::deque<RankCheck> ranks;
  for (size_t i = 0; i < programs.size(); ++i) {
    ranks.emplace_back(programs, i, interpreter, tree, channels, replicas[at(programs[i].pipeline_rank)]);
  }
  interpreter.advance(
      instructions_of(programs),
      [&](size_t rank, const Instruction& instruction, const Dataflow&) {
        ranks[rank].run(instruction);
        return true;
      },
      [&](size_t rank, const Instruction& instruction) { ranks[rank].expect(instruction); });
  interpreter.require_ends();
  CheckReport report;
  report.staleness.resize(static_cast<size_t>(first.num_stages()));
  for (size_t i = 0; i < programs.size(); ++i) {
    ranks[i].finish();
    report.ranks.push_back(peak_memory(programs[i]));
    const std::vector<int> stages = programs[i].own_stages();
    for (size_t own = 0; own < stages.size(); ++own) {
      int& staleness = report.staleness[static_cast<size_t>(std::max(stages[own], 0))];
      staleness = std::max(staleness, ranks[i].staleness()[own]);
    }
  }
  channels.finish();
  return report;
}

Program checked_program(std::vector<Program> programs, int num_leaves, int pipeline_rank, int replica,
                        CheckReport* report) {
  CheckReport found = check_programs(programs, num_leaves);
  if (report != nullptr) *report = std::move(found);
  return std::move(programs[ProgramPlaces(programs.front()).number_of(pipeline_rank, replica)]);
}

}  // namespace trireme
