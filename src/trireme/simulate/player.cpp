#include "trireme/simulate/player.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/index.h"
#include "trireme/base/units.h"
#include "trireme/program/interpreter.h"

namespace trireme {
namespace {

/// One action of a rank: part of a computation, a collective, a transfer to or from parameter servers, a message, or
/// the update.
struct Event {
  enum class Kind { kCompute, kGather, kReduce, kTransfer, kSend, kUpdate } kind = Kind::kCompute;
  const Instruction* instruction = nullptr;
  double seconds = 0;
  bool first = true, last = true;  ///< first or last part of its computation
  bool gathered = false;           ///< waits for the preceding gather
};

/// The event that reduces or pushes a group of a stage. Groups are numbered in backward order, parts in forward order;
/// the group after the last part holds the stage's values.
Event exchange_of(const Instruction& i, const PlayCosts& costs) {
  const size_t stage = i.stage_index(), parts = costs.stages[stage].parts.size();
  const bool is_push = i.op == OpCode::kPush;
  if (at(i.group) >= parts) return {.kind = Event::Kind::kReduce, .instruction = &i, .seconds = costs.values[stage]};
  return {.kind = is_push ? Event::Kind::kTransfer : Event::Kind::kReduce,
          .instruction = &i,
          .seconds = (is_push ? costs.push : costs.reduce)[stage][parts - 1 - at(i.group)]};
}

/// The event of an instruction that ends the step; nullopt if it takes no time.
std::optional<Event> end_of_step(const Instruction& i, const PlayCosts& costs, size_t rank) {
  using Kind = Event::Kind;
  switch (i.op) {
    case OpCode::kOptimizerStep:
      return Event{.kind = Kind::kUpdate, .instruction = &i, .seconds = costs.update[rank]};
    case OpCode::kCombine:
      return Event{.kind = Kind::kReduce, .instruction = &i, .seconds = costs.combine[rank]};
    case OpCode::kMeet:
      return Event{.kind = Kind::kReduce, .instruction = &i, .seconds = costs.meet[rank]};
    case OpCode::kPull:
      return Event{.kind = Kind::kTransfer, .instruction = &i, .seconds = costs.pull[rank]};
    case OpCode::kPush:  // after a norm; pushes after a pass belong to the pass
      return exchange_of(i, costs);
    default:
      return std::nullopt;
  }
}

/// Converts a program to events. A computation is split into parts if a collective or push belongs to a part of it.
std::vector<Event> events_of(const Program& program, const PlayCosts& costs) {
  std::vector<Event> events;
  const std::vector<Instruction>& list = program.instructions;
  std::vector<const Instruction*> gathers, reduces;  // of the next computation, and of the last one
  size_t behind_pass = 0;                            // end of the last computation's group instructions
  for (size_t n = 0; n < list.size(); ++n) {
    const Instruction& i = list[n];
    if (i.op == OpCode::kAllGather) {
      gathers.push_back(&i);
      continue;
    }
    if (is_send(i.op)) events.push_back({.kind = Event::Kind::kSend, .instruction = &i});
    if (!is_compute(i.op)) {
      if (n < behind_pass) continue;
      if (const auto end = end_of_step(i, costs, at(program.pipeline_rank))) events.push_back(*end);
      continue;
    }
    if (i.op == OpCode::kRecompute && costs.repeats_in_backward) {
      gathers.clear();  // the pass after it gathers the same weights
      continue;
    }
    reduces.clear();
    for (behind_pass = n + 1; behind_pass < list.size() && follows_pass(list[behind_pass].op); ++behind_pass) {
      if (list[behind_pass].op != OpCode::kAddSlot) reduces.push_back(&list[behind_pass]);
    }
    std::ranges::stable_sort(reduces, {}, &Instruction::group);
    const StageCost& stage = costs.stages[i.stage_index()];
    const bool forward = i.op == OpCode::kForward || i.op == OpCode::kRecompute;
    const auto seconds_of = [&](const StagePart& part) {
      if (forward) return part.forward;
      return (makes_input_gradient(i.op) ? part.backward_input : 0) +
             (makes_weight_gradient(i.op) ? part.backward_weight : 0);
    };
    const size_t parts = stage.parts.size();
    if (gathers.empty() && (reduces.empty() || !costs.overlap)) {
      events.push_back({.instruction = &i, .seconds = seconds_of(stage.sum)});
      for (const Instruction* reduce : reduces) events.push_back(exchange_of(*reduce, costs));
      continue;
    }
    auto reduce = reduces.begin();
    for (size_t k = 0; k < parts; ++k) {
      const size_t part = forward ? k : parts - 1 - k;
      if (k < gathers.size()) {
        events.push_back(
            {.kind = Event::Kind::kGather, .instruction = gathers[k], .seconds = costs.gather[i.stage_index()][part]});
      }
      events.push_back({.instruction = &i,
                        .seconds = seconds_of(stage.parts[part]),
                        .first = k == 0,
                        .last = k + 1 == parts,
                        .gathered = k < gathers.size()});
      for (; reduce != reduces.end() && at((*reduce)->group) == k; ++reduce) {
        events.push_back(exchange_of(**reduce, costs));
      }
    }
    for (; reduce != reduces.end(); ++reduce) events.push_back(exchange_of(**reduce, costs));
    gathers.clear();
  }
  return events;
}

/// Assigns times to the instructions that the interpreter lets run.
class Player {
 public:
  Player(const std::vector<Program>& programs, const PlayCosts& costs)
      : programs_(programs),
        costs_(costs),
        interpreter_(programs, {.at_each_collective = true}),
        sent_(interpreter_.num_messages()) {
    for (const Program& program : programs) states_.push_back({.events = events_of(program, costs)});
    played_.resize(programs.size());
    meetings_.resize(at(programs.front().num_pipeline_ranks));
  }

  std::vector<PlayedRank> run() {
    do {
      interpreter_.advance(
          [this](size_t rank) -> const std::vector<Event>& { return states_[rank].events; },
          [this](size_t rank, const Event& event, const Dataflow& flow) { return step(rank, event, flow.input); },
          [this](size_t rank, const Event& event) { come(rank, event); });
    } while (costs_.cores > 0 && pass_time());
    interpreter_.require_ends();
    for (size_t rank = 0; rank < states_.size(); ++rank) {
      played_[rank].end = std::max(states_[rank].now, states_[rank].link_free);
    }
    return std::move(played_);
  }

 private:
  struct State {
    std::vector<Event> events = {};
    double now = 0;             ///< end of the last computation
    double previous_start = 0;  ///< start of the last computation
    double link_free = 0;
    double gathered = 0;  ///< end of the last gather
    double activations = 0;
    double updated = 0;  ///< seconds of updates since the last computation
    // Only if ranks share cores:
    double wakes = kNever;  ///< when what it waits for arrives, if known
    double left = 0;        ///< remaining seconds of its computation, on a core of its own
    double started = kNever;
  };

  static bool is_collective(const Event& event) {
    return event.kind == Event::Kind::kGather || event.kind == Event::Kind::kReduce;
  }
  /// Earliest start of a collective: all replicas have reached it, and their streams are free.
  double& meeting(size_t rank) {
    std::vector<double>& meetings = meetings_[at(programs_[rank].pipeline_rank)];
    const size_t number = interpreter_.num_collectives(rank);
    if (meetings.size() <= number) meetings.resize(number + 1);
    return meetings[number];
  }
  double ready_for(const State& state, const Event& event) const {
    const bool ahead = event.kind == Event::Kind::kGather && costs_.overlap;
    return std::max(ahead ? state.previous_start : state.now, state.link_free);
  }
  void come(size_t rank, const Event& event) {
    if (!interpreter_.has_replicas() || !is_collective(event)) return;
    double& ready = meeting(rank);
    ready = std::max(ready, ready_for(states_[rank], event));
  }

  /// With shared cores, advances time for all ranks to the next end of a computation or the next arrival. Returns false
  /// if there is none.
  bool pass_time() {
    double computing = 0, next = kNever;
    for (size_t rank = 0; rank < states_.size(); ++rank) {
      if (states_[rank].started < kNever) computing += costs_.processes[at(programs_[rank].pipeline_rank)];
      next = std::min(next, states_[rank].wakes);
    }
    const double speed = computing > costs_.cores ? costs_.cores / computing * (1 - costs_.sharing_cost) : 1;
    for (const State& state : states_) {
      if (state.started < kNever) next = std::min(next, clock_ + state.left / speed);
    }
    if (next == kNever) return false;
    for (State& state : states_) {
      if (state.started == kNever) continue;
      // Clamp to 0: a rounding remainder could be smaller than the resolution of the clock.
      state.left = clock_ + state.left / speed <= next ? 0 : state.left - (next - clock_) * speed;
    }
    clock_ = next;
    return true;
  }

  /// Computes the end of work that may begin at `start`. With shared cores the end is known only once it is reached;
  /// until then returns false.
  bool work(size_t rank, double& start, double seconds, double& end) {
    end = start + seconds;
    if (costs_.cores == 0) return true;
    State& state = states_[rank];
    if (state.started == kNever) {
      state.wakes = start > clock_ ? start : kNever;
      if (start > clock_) return false;
      state.started = clock_;
      state.left = seconds;
    }
    if (state.left > 0) return false;
    start = state.started;
    end = clock_;
    state.started = kNever;
    return true;
  }

  void compute(size_t rank, const Event& event, double start, double end) {
    State& state = states_[rank];
    PlayedRank& played = played_[rank];
    const Instruction& i = *event.instruction;
    const StageCost& stage = costs_.stages[i.stage_index()];
    if (event.first) {
      if (i.op == OpCode::kForward) state.activations += stage.activation_bytes;
      if (played.spans.empty()) played.first = start;
      const double bytes = state.activations + stage.working_bytes_of(i.op);
      if (bytes > played.peak_activation_bytes) {
        played.peak_activation_bytes = bytes;
        played.peak_at = i;
      }
      played.spans.push_back({i, start * 1e3, 0, state.activations});
    }
    state.previous_start = start;
    state.now = end;
    played.busy += end - start;
    played.updates_between += std::exchange(state.updated, 0);
    played.last = state.now;
    played.spans.back().end_ms = state.now * 1e3;
    if (event.last && makes_weight_gradient(i.op)) state.activations -= stage.activation_bytes;
  }

  bool step(size_t rank, const Event& event, const PassResult& input) {
    State& state = states_[rank];
    PlayedRank& played = played_[rank];
    const Instruction& i = *event.instruction;
    switch (event.kind) {
      case Event::Kind::kSend: {
        const PipelineMessage message = message_of(i);
        sent_[interpreter_.number_of(message)] = state.now;
        if (costs_.overlap_messages) break;
        const double seconds = costs_.message[at(message.is_gradient ? message.stage : message.stage - 1)];
        state.now += seconds;
        played.idle += seconds;
        break;
      }
      case Event::Kind::kCompute: {
        const double message =
            event.first && input.travels ? sent_[input.number] + costs_.message[at(std::min(input.from, input.to))] : 0;
        // Without overlap nothing computes during a collective.
        const double collective = costs_.overlap ? (event.gathered ? state.gathered : 0) : state.link_free;
        const double without = std::max(state.now, message);
        double start = std::max(without, collective), end = 0;
        const double waited = start - without;
        if (!work(rank, start, event.seconds, end)) return false;
        played.waited += waited;
        if (!played.spans.empty()) played.idle += without - state.now;
        compute(rank, event, start, end);
        break;
      }
      case Event::Kind::kGather:
      case Event::Kind::kReduce:
      case Event::Kind::kTransfer: {
        const bool meets = is_collective(event) && interpreter_.has_replicas();
        const double start = meets ? meeting(rank) : ready_for(state, event);
        state.link_free = start + event.seconds;
        if (event.kind == Event::Kind::kGather) state.gathered = state.link_free;
        played.comms.push_back({i, start, state.link_free});
        break;
      }
      case Event::Kind::kUpdate: {
        double start = std::max(state.now, state.link_free), end = 0;
        const double waited = start - state.now;
        if (!work(rank, start, event.seconds, end)) return false;
        played.waited += waited;
        played.update += end - start;
        state.updated += end - start;
        state.now = end;
        played.comms.push_back({i, start, state.now});
        break;
      }
    }
    return true;
  }

  const std::vector<Program>& programs_;
  const PlayCosts& costs_;
  Interpreter interpreter_;
  std::vector<double> sent_;  ///< send time of each message
  std::vector<State> states_;
  std::vector<std::vector<double>> meetings_;  ///< by pipeline rank
  std::vector<PlayedRank> played_;
  double clock_ = 0;  ///< current time, with shared cores
};

}  // namespace

std::vector<PlayedRank> play(const std::vector<Program>& programs, const PlayCosts& costs) {
  if (programs.empty()) throw UsageError("there are no programs to play");
  return Player(programs, costs).run();
}

}  // namespace trireme
