#include "trireme/program/timeline.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/index.h"
#include "trireme/base/units.h"
#include "trireme/program/interpreter.h"
#include "trireme/program/schedules/play.h"

namespace trireme {
namespace {

/// Assigns times to instructions as the interpreter runs them.
class Clock {
 public:
  Clock(const std::vector<Program>& programs, const StageTimes& times)
      : programs_(programs),
        times_(times),
        interpreter_(programs),
        sent_(interpreter_.num_messages()),
        posted_(sent_),
        now_(programs.size()) {}

  Timeline run() {
    timeline_.ranks.resize(programs_.size());
    for (const Program& program : programs_) held_.push_back(activations_held(program));
    interpreter_.advance(instructions_of(programs_), [this](size_t rank, const Instruction& i, const Dataflow& flow) {
      if (is_send(i.op)) sent_[interpreter_.number_of(message_of(i))] = now_[rank];
      if (is_receive(i.op)) posted_[interpreter_.number_of(message_of(i))] = now_[rank];
      if (is_compute(i.op)) compute(rank, i, flow.input);
      return true;
    });
    interpreter_.require_ends();
    summarise(timeline_);
    return std::move(timeline_);
  }

 private:
  void compute(size_t rank, const Instruction& i, const PassResult& input) {
    RankTimeline& own = timeline_.ranks[rank];
    double start = now_[rank];
    if (input.travels) {
      const double sent = std::max(sent_[input.number], posted_[input.number]);
      start = std::max(start, sent + times_.comm[at(input.from)]);
    }
    now_[rank] = start + time_of(i, times_);
    own.busy_ms += now_[rank] - start;
    const auto number = static_cast<size_t>(&i - programs_[rank].instructions.data());
    own.spans.push_back(
        {i, start, now_[rank], std::max(number == 0 ? 0 : held_[rank][number - 1], held_[rank][number])});
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
      timeline.ideal_ms =
          std::max(timeline.ideal_ms, ideal * programs_[rank].num_micro_batches / programs_[rank].num_ranks);
    }
    timeline.makespan_ms -= timeline.makespan_ms > 0 ? first : 0;
    if (timeline.cost_ms > 0) timeline.bubble_rate = (timeline.cost_ms - timeline.ideal_ms) / timeline.cost_ms;
  }

  const std::vector<Program>& programs_;
  const StageTimes& times_;
  Interpreter interpreter_;
  std::vector<double> sent_, posted_;  ///< time by message
  std::vector<double> now_;
  std::vector<std::vector<double>> held_;
  Timeline timeline_;
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
  return Clock(programs, times).run();
}

}  // namespace trireme
