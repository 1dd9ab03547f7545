// A pipeline schedule of your own, in 30 lines: written, checked, timed, compared and printed, before any model exists.
//
// It teaches that a schedule is a function from a rank to an order of computations, and that all else follows from it:
// messages, sums, updates, the proof that nobody waits for ever, the bubble and the memory.
//
//   ./example_06_own_schedule
//
// prints a drawing of "early weights", a zero-bubble schedule that does weight gradients as soon as it can:
//
//   early weights: bubble 20 %, activations 4 3 2 1
//   rank 0 F0 F1 F2 F3 ·········I0 W0 F4 I1 W1 F5 I2 W2 F6 …
//
// and beside it the bubbles of the built-in schedules it competes with.
#include <iostream>

#include "trireme/plan.h"
#include "trireme/trireme.h"

using namespace trireme;

namespace {

/// One stage per rank: forward passes until the pipeline is full; then a backward pass, its weights, a forward pass.
Schedule early_weights(int num_ranks, int num_micro_batches) {
  Schedule schedule{.num_ranks = num_ranks, .num_micro_batches = num_micro_batches};
  schedule.rank_of_stage = place_in_rounds(num_ranks, 1);
  for (int rank = 0; rank < num_ranks; ++rank) {
    std::vector<Instruction> order;
    const auto compute = [&](OpCode op, int m) { order.push_back({.op = op, .stage = rank, .micro_batch = m}); };
    int forward = 0;
    for (int backward = 0; backward < num_micro_batches; ++backward) {
      while (forward < std::min(num_micro_batches, backward + num_ranks - rank)) compute(OpCode::kForward, forward++);
      compute(OpCode::kBackwardInput, backward);
      compute(OpCode::kWeightGrad, backward);
    }
    schedule.ranks.push_back(order);
  }
  return schedule;
}

Timeline check_and_time(const Schedule& schedule, const std::vector<Program>& programs) {
  check_programs(programs, schedule.num_micro_batches);  // throws where it could not run, or would sum wrongly
  return make_timeline(programs, StageTimes::equal(schedule.num_stages(), 1, 1, 1, 0));
}

}  // namespace

int main() {
  try {
    const Schedule schedule = early_weights(4, 8);
    const std::vector<Program> programs = lower_pipeline_ranks({.schedule = schedule});
    const Timeline timeline = check_and_time(schedule, programs);
    std::cout << "early weights: bubble " << 100 * timeline.bubble_rate << " %, activations";
    for (const RankTimeline& rank : timeline.ranks) std::cout << ' ' << rank.peak.activations;
    std::cout << '\n' << draw_text(timeline, programs, {.width = 120});

    for (const ScheduleKind kind : {ScheduleKind::k1F1B, ScheduleKind::kZbH1, ScheduleKind::kZbH2}) {
      const Schedule other = make_schedule({.kind = kind, .num_ranks = 4, .num_micro_batches = 8});
      const Timeline time = check_and_time(other, lower_pipeline_ranks({.schedule = other}));
      std::cout << name_of(kind) << ": bubble " << 100 * time.bubble_rate << " %\n";
    }
  } catch (const Error& error) {  // names the rank, the instruction and the reason
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
}
