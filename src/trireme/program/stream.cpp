#include "trireme/program/stream.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/index.h"

namespace trireme {
namespace {

using List = std::vector<Instruction>;

std::ptrdiff_t offset(size_t n) { return static_cast<std::ptrdiff_t>(n); }

/// Programs of one replica's ranks for so many micro-batches.
std::vector<Program> programs_for(PipelineShape shape, ScheduleShape schedule, int num_micro_batches, int replica) {
  schedule.num_micro_batches = num_micro_batches;
  shape.schedule = make_schedule(schedule);
  return lower_pipeline_ranks(shape, replica);
}

/// Where the round of a rank's list lies in `longer`, the list that is longer than `list` by one round.
Stream find_round(const Program& list, Program longer) {
  const List &shorter = list.instructions, &all = longer.instructions;
  Stream stream;
  stream.micro_batches_per_round = longer.num_micro_batches - list.num_micro_batches;
  stream.updates_per_round = longer.num_updates - list.num_updates;
  stream.round_begin =
      at(std::mismatch(shorter.begin(), shorter.end(), all.begin(), all.end()).first - shorter.begin());
  stream.round_end = stream.round_begin + all.size() - shorter.size();
  // A pass and the group instructions that follow it stay together.
  while (stream.round_begin > 0 && follows_pass(all[stream.round_begin].op)) {
    --stream.round_begin;
    --stream.round_end;
  }
  stream.program = std::move(longer);
  return stream;
}

}  // namespace

Instruction Stream::shifted(Instruction instruction, int rounds) const {
  if (instruction.micro_batch >= 0) instruction.micro_batch += rounds * micro_batches_per_round;
  if (instruction.version >= 0) instruction.version += rounds * updates_per_round;
  return instruction;
}

Program Stream::unrolled(int rounds) const {
  const List& all = program.instructions;
  Program result = program;
  result.num_micro_batches = num_micro_batches(rounds);
  result.num_updates += (rounds - 1) * updates_per_round;
  result.instructions.assign(all.begin(), all.begin() + offset(round_begin));
  const auto add = [&](size_t begin, size_t end, int shift) {
    for (size_t i = begin; i < end; ++i) result.instructions.push_back(shifted(all[i], shift));
  };
  for (int round = 0; round < rounds; ++round) add(round_begin, round_end, round);
  add(round_end, all.size(), rounds - 1);
  return result;
}

std::vector<Stream> streams_of(PipelineShape shape, ScheduleShape schedule, int replica) {
  const auto refuse = [&](const char* why) {
    throw UsageError(fmt::format("{} cannot run as a stream: {}", name_of(schedule.kind), why),
                     "pipedream, pipedream-vertical-sync and pipedream-2bw can");
  };
  if (is_synchronous(schedule.kind)) refuse("it updates the weights once a step, when the pipeline is empty");
  // Long enough to be filled, with receives that are posted ahead. 2BW chooses its period by the number of ranks.
  const int least = 4 * schedule.num_ranks + 2 * shape.receive_ahead;
  if (schedule.update_every == 0) {
    schedule.update_every = weight_rule(schedule.kind) == WeightRule::kDoubleBuffer ? schedule.num_ranks : 1;
  }
  const int period = schedule.update_every;
  const int count = (least + period - 1) / period * period;
  const auto programs = [&](int rounds) { return programs_for(shape, schedule, count + rounds * period, replica); };
  const std::vector<Program> shorter = programs(0), longer = programs(1), longest = programs(3);
  std::vector<Stream> streams;
  for (size_t rank = 0; rank < longer.size(); ++rank) {
    streams.push_back(find_round(shorter[rank], longer[rank]));
    if (streams[rank].unrolled(0) != shorter[rank] || streams[rank].unrolled(3) != longest[rank]) {
      refuse("its order does not repeat");
    }
  }
  // As short as all ranks can have it: a round that stands before the first is another first. Two updates stay without
  // any round, since a program of one ends as a synchronous step does.
  const auto starts_earlier = [](const Stream& s) {
    const size_t length = s.round_end - s.round_begin;
    if (s.round_begin < length || s.program.num_updates < 4 * s.updates_per_round) return false;
    const auto begin = s.program.instructions.begin();
    return std::equal(begin + offset(s.round_begin - length), begin + offset(s.round_begin),
                      begin + offset(s.round_begin),
                      [&](const Instruction& a, const Instruction& b) { return s.shifted(a, 1) == b; });
  };
  while (std::all_of(streams.begin(), streams.end(), starts_earlier)) {
    for (Stream& s : streams) {
      const size_t length = s.round_end - s.round_begin;
      Program fewer = s.unrolled(0);
      s.round_begin -= length;
      s.round_end -= length;
      s.program = std::move(fewer);
    }
  }
  return streams;
}

}  // namespace trireme
