// Programs without an end, for asynchronous schedules: the pipeline fills once, then the same round repeats for as long
// as there are micro-batches, and drains at the end.
//
//   L(k) = begin + round + round shifted by one + … + end shifted by k        k rounds
//
// [Note: Streams]
// A step of PipeDream with a flush pays for filling and draining the pipeline at every step; a stream pays once. A
// stream is not another kind of program: with k rounds it is, instruction by instruction, the program that
// lower_pipeline() makes for as many micro-batches. So what is proved of those programs is proved of streams, and the
// executor needs to know one round alone, whatever the length.
#pragma once

#include "trireme/program/pipeline.h"

namespace trireme {

/// The stream of one rank. Numbers of micro-batches and of weight versions grow from round to round.
struct Stream {
  /// Begin, one round and end: whatever holds for all instructions (slots, groups, ranks) is here.
  Program program;
  size_t round_begin = 0, round_end = 0;  ///< the round is instructions round_begin … round_end − 1
  int micro_batches_per_round = 0;        ///< over all replicas
  int updates_per_round = 0;

  /// An instruction of `program` as the n-th round has it (n from 0), or, for the end, after n more rounds than one.
  Instruction shifted(Instruction instruction, int rounds) const;
  /// The program with so many rounds.
  Program unrolled(int rounds) const;
  /// Micro-batches of unrolled(), over all replicas.
  int num_micro_batches(int rounds) const { return program.num_micro_batches + (rounds - 1) * micro_batches_per_round; }
  bool operator==(const Stream&) const = default;
};

/// Streams of the ranks of one replica. The number of micro-batches of `schedule` does not matter. All ranks need the
/// same number of micro-batches for the same number of rounds. Throws UsageError for a schedule that updates weights
/// once a step, and for one whose order does not repeat.
std::vector<Stream> streams_of(PipelineShape shape, ScheduleShape schedule, int replica = 0);

}  // namespace trireme
