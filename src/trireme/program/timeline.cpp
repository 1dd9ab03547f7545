#include "trireme/program/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/base/index.h"
#include "trireme/base/units.h"
#include "trireme/program/schedules/play.h"

namespace trireme {
namespace {

/// Plays all ranks, each as far as the messages that it needs have been sent.
class Player {
 public:
  Player(const std::vector<Program>& programs, const StageTimes& times)
      : programs_(programs),
        times_(times),
        num_stages_(programs.front().num_stages()),
        count_(programs.front().num_micro_batches),
        sent_(2 * at(num_stages_) * at(count_), kNever),
        posted_(sent_) {}

  Timeline run() {
    Timeline timeline;
    timeline.ranks.resize(programs_.size());
    std::vector<size_t> next(programs_.size());
    std::vector<double> now(programs_.size());
    std::vector<std::vector<double>> held;
    for (const Program& program : programs_) held.push_back(activations_held(program));
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t rank = 0; rank < programs_.size(); ++rank) {
        const std::vector<Instruction>& list = programs_[rank].instructions;
        for (; next[rank] < list.size(); ++next[rank]) {
          const Instruction& instruction = list[next[rank]];
          const double ready = ready_at(programs_[rank], instruction);
          if (ready == kNever) break;
          moved = true;
          post(instruction, now[rank]);
          if (!is_compute(instruction.op)) continue;
          const double start = std::max(now[rank], ready);
          now[rank] = start + time_of(instruction, times_);
          timeline.ranks[rank].busy_ms += now[rank] - start;
          const double before = next[rank] == 0 ? 0 : held[rank][next[rank] - 1];
          timeline.ranks[rank].spans.push_back(
              {instruction, start, now[rank], std::max(before, held[rank][next[rank]])});
        }
      }
    }
    for (size_t rank = 0; rank < programs_.size(); ++rank) {
      if (next[rank] == programs_[rank].instructions.size()) continue;
      throw Error(
          fmt::format("rank {} would wait for ever at {}", rank, programs_[rank].instructions[next[rank]].to_string()));
    }
    summarise(timeline);
    return timeline;
  }

 private:
  double& cell(std::vector<double>& cells, const PipelineMessage& message) const {
    return cells[(2 * at(message.stage) + (message.is_gradient ? 1 : 0)) * at(count_) + at(message.micro_batch)];
  }

  /// When the message for a computation is there; 0 where none is needed.
  double ready_at(const Program& program, const Instruction& i) {
    const bool forward = i.op == OpCode::kForward;
    if (!forward && !makes_input_gradient(i.op)) return 0;
    const int source = i.stage + (forward ? -1 : 1);
    if (!program.is_elsewhere(source)) return 0;
    const PipelineMessage message{!forward, i.stage, i.micro_batch};
    return std::max(cell(sent_, message), cell(posted_, message)) + times_.comm[at(source)];
  }

  void post(const Instruction& i, double now) {
    if (!is_send(i.op) && !is_receive(i.op)) return;
    const PipelineMessage message = message_of(i);
    if (message.stage < 0 || message.stage >= num_stages_) return;
    cell(is_send(i.op) ? sent_ : posted_, message) = now;
  }

  void summarise(Timeline& timeline) const {
    double first = kNever;
    for (size_t rank = 0; rank < programs_.size(); ++rank) {
      RankTimeline& own = timeline.ranks[rank];
      own.peak = peak_memory(programs_[rank]);
      if (own.spans.empty()) continue;
      first = std::min(first, own.spans.front().start_ms);
      timeline.makespan_ms = std::max(timeline.makespan_ms, own.spans.back().end_ms);
      timeline.cost_ms = std::max(timeline.cost_ms, own.spans.back().end_ms - own.spans.front().start_ms);
      double ideal = 0;
      for (const int number : programs_[rank].own_stages()) {
        const size_t stage = at(std::max(number, 0));
        ideal += times_.forward[stage] + times_.backward[stage] + times_.weight[stage];
      }
      timeline.ideal_ms = std::max(timeline.ideal_ms, ideal * count_ / programs_[rank].num_ranks);
    }
    timeline.makespan_ms -= timeline.makespan_ms > 0 ? first : 0;
    if (timeline.cost_ms > 0) timeline.bubble_rate = (timeline.cost_ms - timeline.ideal_ms) / timeline.cost_ms;
  }

  const std::vector<Program>& programs_;
  const StageTimes& times_;
  const int num_stages_, count_;
  std::vector<double> sent_, posted_;  ///< of messages, by their receiver's stage
};

}  // namespace

Timeline make_timeline(const std::vector<Program>& programs, const StageTimes& times) {
  if (programs.empty()) throw UsageError("there are no programs to time");
  const auto num_stages = at(programs.front().num_stages());
  for (const auto* values : {&times.forward, &times.backward, &times.weight, &times.comm}) {
    if (values->size() != num_stages) {
      throw UsageError(fmt::format("{} times for {} stages", values->size(), num_stages));
    }
  }
  return Player(programs, times).run();
}

}  // namespace trireme
