#include "trireme/simulate/player.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/index.h"

namespace trireme {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// What a rank does at one point: a part of a computation, a collective, a message or the update.
struct Event {
  enum class Kind { kCompute, kGather, kReduce, kSend, kUpdate } kind = Kind::kCompute;
  size_t instruction = 0;
  double seconds = 0;
  bool first = true, last = true;  ///< part of its computation
  bool gathered = false;           ///< waits for the gather before it
};

/// A program as events: computations are cut where a collective belongs to a part of them.
std::vector<Event> events_of(const Program& program, const PlayCosts& costs) {
  std::vector<Event> events;
  const std::vector<Instruction>& list = program.instructions;
  std::vector<size_t> gathers;  // of the computation that comes
  for (size_t n = 0; n < list.size(); ++n) {
    const Instruction& i = list[n];
    if (i.op == OpCode::kAllGather) {
      gathers.push_back(n);
      continue;
    }
    if (is_send(i.op)) events.push_back({.kind = Event::Kind::kSend, .instruction = n});
    if (i.op == OpCode::kOptimizerStep) {
      events.push_back(
          {.kind = Event::Kind::kUpdate, .instruction = n, .seconds = costs.update[at(program.pipeline_rank)]});
    }
    if (!is_compute(i.op)) continue;
    std::vector<size_t> reduces;
    for (size_t next = n + 1; next < list.size(); ++next) {
      if (list[next].op != OpCode::kAllReduce && list[next].op != OpCode::kReduceScatter) {
        if (list[next].op == OpCode::kAddSlot) continue;
        break;
      }
      reduces.push_back(next);
    }
    const StageCost& stage = costs.stages[at(i.stage)];
    const bool forward = i.op == OpCode::kForward || i.op == OpCode::kRecompute;
    const auto seconds_of = [&](const StagePart& part) {
      if (forward) return part.forward;
      return (makes_input_gradient(i.op) ? part.backward_input : 0) +
             (makes_weight_gradient(i.op) ? part.backward_weight : 0);
    };
    const size_t parts = stage.parts.size();
    if (gathers.empty() && (reduces.empty() || !costs.overlap)) {
      events.push_back({.instruction = n, .seconds = seconds_of(stage.sum)});
      for (const size_t reduce : reduces) {
        events.push_back({.kind = Event::Kind::kReduce,
                          .instruction = reduce,
                          .seconds = costs.reduce[at(i.stage)][parts - 1 - at(list[reduce].group)]});
      }
      continue;
    }
    for (size_t k = 0; k < parts; ++k) {
      const size_t part = forward ? k : parts - 1 - k;
      if (k < gathers.size()) {
        events.push_back(
            {.kind = Event::Kind::kGather, .instruction = gathers[k], .seconds = costs.gather[at(i.stage)][part]});
      }
      events.push_back({.instruction = n,
                        .seconds = seconds_of(stage.parts[part]),
                        .first = k == 0,
                        .last = k + 1 == parts,
                        .gathered = k < gathers.size()});
      if (k < reduces.size()) {
        events.push_back(
            {.kind = Event::Kind::kReduce, .instruction = reduces[k], .seconds = costs.reduce[at(i.stage)][part]});
      }
    }
    gathers.clear();
  }
  return events;
}

class Player {
 public:
  Player(const std::vector<Program>& programs, const PlayCosts& costs)
      : programs_(programs),
        costs_(costs),
        ranks_per_replica_(at(programs.front().num_pipeline_ranks)),
        replicas_(programs.size() / ranks_per_replica_),
        sent_(2 * at(programs.front().num_stages()) * at(programs.front().num_micro_batches), kNever) {
    for (const Program& program : programs) states_.push_back({.events = events_of(program, costs)});
    played_.resize(programs.size());
    meetings_.resize(ranks_per_replica_);
  }

  std::vector<PlayedRank> run() {
    do {
      for (bool moved = true; moved;) {
        moved = false;
        for (size_t rank = 0; rank < states_.size(); ++rank) {
          while (states_[rank].next < states_[rank].events.size() && step(rank)) moved = true;
        }
      }
    } while (costs_.cores > 0 && pass_time());
    for (size_t rank = 0; rank < states_.size(); ++rank) {
      const State& state = states_[rank];
      if (state.next < state.events.size()) {
        throw Error(fmt::format("rank {} would wait for ever at {}", rank,
                                programs_[rank].instructions[state.events[state.next].instruction].to_string()));
      }
      played_[rank].end = std::max(state.now, state.link_free);
    }
    return std::move(played_);
  }

 private:
  struct State {
    std::vector<Event> events = {};
    size_t next = 0;
    double now = 0;             ///< end of the last computation
    double previous_start = 0;  ///< of the last computation
    double link_free = 0;
    double gathered = 0;     ///< end of the last gather
    size_t collectives = 0;  ///< that it has come to
    bool reported = false;   ///< to the meeting of the next one
    double activations = 0;
    double updated = 0;  ///< seconds of updates since the last computation
    // Of a rank that shares cores:
    double wakes = kNever;  ///< when what it waits for is there, where that is known
    double left = 0;        ///< seconds of its computation, on a core of its own
    double started = kNever;
  };
  /// A collective of the replicas of one pipeline rank.
  struct Meeting {
    size_t arrived = 0;
    double ready = 0;
  };

  double& cell(const PipelineMessage& message) {
    const Program& any = programs_.front();
    return sent_[(2 * at(message.stage) + (message.is_gradient ? 1 : 0)) * at(any.num_micro_batches) +
                 at(message.micro_batch)];
  }

  /// When the message for a computation is there; 0 where none is needed.
  double message_at(const Program& program, const Instruction& i) {
    const bool forward = i.op == OpCode::kForward;
    if (!forward && !makes_input_gradient(i.op)) return 0;
    const int source = i.stage + (forward ? -1 : 1);
    if (!program.is_elsewhere(source)) return 0;
    return cell({!forward, i.stage, i.micro_batch}) + costs_.message[at(std::min(source, i.stage))];
  }

  /// When a collective may start: all replicas are there, and this rank's stream is free. False: not yet known.
  bool meet(size_t rank, double ready, double& start) {
    State& state = states_[rank];
    if (replicas_ == 1) {
      start = std::max(ready, state.link_free);
      return true;
    }
    std::vector<Meeting>& meetings = meetings_[rank % ranks_per_replica_];
    if (meetings.size() <= state.collectives) meetings.resize(state.collectives + 1);
    Meeting& meeting = meetings[state.collectives];
    if (!state.reported) {
      ++meeting.arrived;
      meeting.ready = std::max({meeting.ready, ready, state.link_free});
      state.reported = true;
    }
    if (meeting.arrived < replicas_) return false;
    start = meeting.ready;
    state.reported = false;
    ++state.collectives;
    return true;
  }

  /// Where cores are shared, time goes on for all ranks at once: to the next end of a computation, or the next arrival
  /// of what one waits for. False where there is none.
  bool pass_time() {
    double computing = 0, next = kNever;
    for (size_t rank = 0; rank < states_.size(); ++rank) {
      if (states_[rank].started < kNever) computing += costs_.processes[rank % ranks_per_replica_];
      next = std::min(next, states_[rank].wakes);
    }
    const double speed = computing > costs_.cores ? costs_.cores / computing * (1 - costs_.sharing_cost) : 1;
    for (const State& state : states_) {
      if (state.started < kNever) next = std::min(next, clock_ + state.left / speed);
    }
    if (next == kNever) return false;
    for (State& state : states_) {
      if (state.started == kNever) continue;
      // What ends now, ends: rounding must not leave a rest that time is too coarse for.
      state.left = clock_ + state.left / speed <= next ? 0 : state.left - (next - clock_) * speed;
    }
    clock_ = next;
    return true;
  }

  /// The end of work that may begin at `start`: at once known, or where cores are shared when it has come. False: not
  /// yet.
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
    const Instruction& i = programs_[rank].instructions[event.instruction];
    const StageCost& stage = costs_.stages[at(i.stage)];
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

  bool step(size_t rank) {
    State& state = states_[rank];
    PlayedRank& played = played_[rank];
    const Event& event = state.events[state.next];
    const Instruction& i = programs_[rank].instructions[event.instruction];
    switch (event.kind) {
      case Event::Kind::kSend: {
        const PipelineMessage message = message_of(i);
        if (message.stage < 0 || message.stage >= programs_[rank].num_stages()) break;
        cell(message) = state.now;
        if (costs_.overlap_messages) break;
        const double seconds = costs_.message[at(message.is_gradient ? message.stage : message.stage - 1)];
        state.now += seconds;
        played.idle += seconds;
        break;
      }
      case Event::Kind::kCompute: {
        const double message = event.first ? message_at(programs_[rank], i) : 0;
        if (message == kNever) return false;
        // Without overlap nothing computes while a collective is under way.
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
      case Event::Kind::kReduce: {
        const bool gather = event.kind == Event::Kind::kGather;
        double start = 0;
        if (!meet(rank, gather && costs_.overlap ? state.previous_start : state.now, start)) return false;
        state.link_free = start + event.seconds;
        if (gather) state.gathered = state.link_free;
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
    ++state.next;
    return true;
  }

  const std::vector<Program>& programs_;
  const PlayCosts& costs_;
  const size_t ranks_per_replica_, replicas_;
  std::vector<double> sent_;
  std::vector<State> states_;
  std::vector<std::vector<Meeting>> meetings_;
  std::vector<PlayedRank> played_;
  double clock_ = 0;  ///< where cores are shared
};

}  // namespace

std::vector<PlayedRank> play(const std::vector<Program>& programs, const PlayCosts& costs) {
  if (programs.empty()) throw UsageError("there are no programs to play");
  return Player(programs, costs).run();
}

}  // namespace trireme
