// Interprets the lists of all ranks together: decides which instruction of which rank may run next, and what the others
// wait for. What an instruction does is up to the caller, such as checking rules or adding up times.
//
// [Note: Waiting]
// A rank runs its list in order. An instruction waits only in these cases:
//
//   a computation   until another rank has sent its input, or an earlier computation of its own rank has made it
//   a send          while too many earlier sends of its channel have no posted receive, if that is limited
//   an update       until all replicas have started the collectives before it; or each collective waits instead
//   a tied weight   until the other end has sent its gradient, or the weight itself
//   a norm          until all ranks of the model have reached it
//
// An instruction that may run stays runnable, whatever other ranks do first. So the order in which ranks take turns
// does not change what they compute, and one run stands for all.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/index.h"
#include "trireme/program/instruction.h"

namespace trireme {

/// Maps the index of a program among those of all ranks to pipeline rank and replica, and back. Programs are ordered
/// replica by replica; rank by rank if ranks differ in their replicas.
class ProgramPlaces {
 public:
  explicit ProgramPlaces(const Program& any);
  size_t count() const;
  int rank_of(size_t number) const;  ///< pipeline rank
  int replica_of(size_t number) const;
  size_t number_of(int rank, int replica) const;

 private:
  size_t num_ranks_, num_replicas_;
  std::vector<size_t> first_of_rank_;  ///< index of each rank's replica 0, then the total; empty: ranks alike
};

struct WaitRules {
  std::optional<int> sends_under_way = {};  ///< most sends of a channel without a receive; unset: no limit
  bool at_each_collective = false;          ///< replicas wait for each other there, not at the update after it
};

/// A result that one computation of a micro-batch makes for the next.
struct PassResult {
  int from = -1, to = -1;  ///< producing and consuming stage; -1: no result
  size_t number = 0;       ///< index, below Interpreter::num_messages()
  bool travels = false;    ///< sent to another rank
  explicit operator bool() const { return from >= 0; }
};
/// Input and output of a computation. Both empty for kWeightGrad, kRecompute and other instructions; one at either end
/// of the pipeline.
struct Dataflow {
  PassResult input, output;
};

class Interpreter {
  struct ExpectNothing {
    void operator()(size_t, const auto&) const {}
  };

 public:
  /// `programs`: of all ranks, or of the ranks of one replica. Keeps a reference.
  explicit Interpreter(const std::vector<Program>& programs, const WaitRules& rules = {});
  /// For orders of computations that are not programs yet: every result is sent as soon as it is made. Keeps a
  /// reference to `rank_of_stage`.
  Interpreter(size_t num_ranks, const std::vector<int>& rank_of_stage, int num_micro_batches);

  /// Runs each rank's list as far as it can go, and returns when no rank makes progress.
  ///
  /// `list_of(rank)`: a vector of instructions, or of items with a pointer `instruction`.
  /// `run(rank, item, flow)`: called when the item may run; returns false to be called again later.
  /// `expect(rank, item)`: called before the item may have to wait, possibly several times.
  template <typename Lists, typename Run, typename Expect = ExpectNothing>
  void advance(const Lists& list_of, Run&& run, Expect&& expect = {}) {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t rank = 0; rank < ranks_.size(); ++rank) {
        const auto& list = list_of(rank);
        size_t& next = ranks_[rank].next;
        const size_t before = next;
        for (; next < list.size(); ++next) {
          expect(rank, list[next]);
          const Instruction& instruction = instruction_of(list[next]);
          const Dataflow flow = is_compute(instruction.op) ? dataflow_of(instruction) : Dataflow();
          if (is_held(rank, instruction, flow) || !run(rank, list[next], flow)) break;
          finish(rank, instruction, flow);
        }
        moved |= next != before;
        ranks_[rank].stands_at = next == list.size() ? nullptr : &instruction_of(list[next]);
      }
    }
  }
  /// Throws Error that says where each rank stands and what it waits for, unless all lists have been run to the end.
  void require_ends() const;

  size_t num_messages() const { return there_.size(); }
  size_t number_of(const PipelineMessage& message) const {
    return (2 * at(message.stage) + (message.is_gradient ? 1 : 0)) * num_micro_batches_ + at(message.micro_batch);
  }
  bool is_there(const PipelineMessage& message) const { return there_[number_of(message)]; }
  Dataflow dataflow_of(const Instruction& i) const {
    const auto [needs, makes] = messages_of(i, static_cast<int>(rank_of_stage_.size()));
    return {needs ? result(*needs) : PassResult(), makes ? result(*makes) : PassResult()};
  }

  /// Index of the program at the other end of a send or a receive.
  size_t other_end(size_t rank, const Instruction& message) const;
  /// Number of collectives that a rank has started.
  size_t num_collectives(size_t rank) const { return ranks_[rank].collectives; }
  /// Whether any pipeline rank has more than one replica.
  bool has_replicas() const { return has_replicas_; }

 private:
  struct Rank {
    size_t next = 0;
    const Instruction* stands_at = nullptr;
    size_t collectives = 0;  ///< collectives started
    bool has_come = false;   ///< has reached the next collective
    bool at_norm = false;
  };
  /// The replicas of one pipeline rank.
  struct Replicas {
    size_t count = 0;
    std::vector<size_t> came;  ///< per collective: replicas that have reached it
  };

  static const Instruction& instruction_of(const Instruction& instruction) { return instruction; }
  static const Instruction& instruction_of(const auto& item) { return *item.instruction; }
  PassResult result(const PipelineMessage& message) const {
    const int to = message.stage, from = message.is_gradient ? to + 1 : to - 1;
    return {from, to, number_of(message), rank_of_stage_[at(from)] != rank_of_stage_[at(to)]};
  }

  bool is_held(size_t rank, const Instruction& i, const Dataflow& flow) {
    if (is_compute(i.op)) return flow.input && !there_[flow.input.number];
    if (is_send(i.op)) return rules_.sends_under_way && is_channel_full(rank, i);
    if (receives_tied(i.op)) return waits_for_tied(rank, i);
    if (i.op == OpCode::kNorm) return waits_for_norm(rank);
    if (!has_replicas_) return false;
    if (rules_.at_each_collective) return is_collective(i.op) && waits_at_collective(rank);
    return i.op == OpCode::kOptimizerStep && waits_for_sums(rank);
  }
  void finish(size_t rank, const Instruction& i, const Dataflow& flow) {
    if (is_compute(i.op)) {
      if (flow.output && (sends_at_once_ || !flow.output.travels)) there_[flow.output.number] = true;
    } else if (is_send(i.op)) {
      there_[number_of(message_of(i))] = true;
      if (rules_.sends_under_way) ++unreceived_[{rank, other_end(rank, i)}];
    } else if (is_receive(i.op)) {
      if (rules_.sends_under_way) --unreceived_[{other_end(rank, i), rank}];
    } else if (is_collective(i.op)) {
      if (has_replicas_) come_to_collective(rank);
      ranks_[rank].has_come = false;
      ++ranks_[rank].collectives;
    } else if (is_tied(i.op) && !receives_tied(i.op)) {
      ++tied_sent_[{i.op, i.tied}];
    }
  }
  bool is_channel_full(size_t rank, const Instruction& send) const;
  void come_to_collective(size_t rank);
  bool waits_at_collective(size_t rank);
  bool waits_for_sums(size_t rank) const;
  bool waits_for_tied(size_t rank, const Instruction& receive) const;
  bool waits_for_norm(size_t rank);
  std::string reason(size_t rank) const;

  const std::span<const Program> programs_;  ///< empty for plain orders
  const std::vector<int>& rank_of_stage_;
  const size_t num_micro_batches_;
  const WaitRules rules_;
  const bool sends_at_once_, has_replicas_;
  std::vector<Rank> ranks_;
  std::vector<Replicas> replicas_of_;                    ///< [pipeline rank]
  std::vector<char> there_;                              ///< [message]: sent, or made for a stage on the same rank
  std::map<std::pair<size_t, size_t>, int> unreceived_;  ///< [channel]: sends minus receives; may be negative
  std::map<std::pair<OpCode, int>, size_t> tied_sent_;   ///< replicas that have sent the tied weight, or its gradient
  std::map<int, size_t> at_norm_;                        ///< [model]: ranks that have reached the norm
};

/// The instructions of programs, for Interpreter::advance().
inline auto instructions_of(const std::vector<Program>& programs) {
  return [&programs](size_t rank) -> const std::vector<Instruction>& { return programs[rank].instructions; };
}

}  // namespace trireme
