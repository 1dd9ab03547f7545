// The check of one rank: the rules for its instructions, in the order in which the interpreter runs them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <unordered_map>

#include "trireme/program/check/check.h"
#include "trireme/program/check/check_exchange.h"
#include "trireme/program/interpreter.h"

namespace trireme {

class RankCheck {
 public:
  RankCheck(const std::vector<Program>& programs, size_t number, const Interpreter& interpreter, const SumTree& tree,
            Channels& channels, Replicas& replicas);

  /// Checks the rules that the next instruction must meet before it may wait. Throws Error.
  void expect(const Instruction& instruction);
  /// Checks the remaining rules and applies the instruction's effects. Throws Error.
  void run(const Instruction& instruction);
  /// Call it after the last instruction. Throws Error if something is missing.
  void finish();
  /// Staleness of the rank's stages, in order; see CheckReport.
  const std::vector<int>& staleness() const { return staleness_; }

 private:
  /// State of a micro-batch in a stage.
  struct Work {
    bool forwarded = false, freed = false, input_gradient = false, weight_gradient = false;
    bool posted_activation = false, posted_gradient = false;
    int version = 0;
  };
  struct Stage {
    int number = -1;
    std::unordered_map<int, Work> work;          ///< [micro-batch]
    std::vector<std::vector<PartialSum>> slots;  ///< [slot][group]; empty sum: unused
    std::vector<bool> reduced;                   ///< [group]: reduced (or pushed) in this update
    std::vector<bool> stashed;                   ///< [version]
    int newest = 0, restored = -1, oldest_used = -1;
    // Indexed by sharded group; these come first.
    std::vector<bool> gathered;               ///< full weights are here, of the newest version
    std::vector<std::vector<int>> scattered;  ///< micro-batches in the shards, if each is scattered at once
  };

  bool is_done() const { return at_ == program_.instructions.size(); }
  [[noreturn]] void fail(const std::string& cause) const;
  void require(bool truth, const char* cause) const {
    if (!truth) fail(cause);
  }
  Stage& stage_of(const Instruction& instruction);
  Work& work_of(const Instruction& instruction);
  int use_weights(Stage& stage);
  /// ZeRO-3 frees gathered weights after each pass.
  void end_pass(Stage& stage, OpCode op) const;

  void expect_pass(const Instruction& instruction);
  void expect_send(const Instruction& instruction);
  void apply(const Instruction& instruction);
  void forward(const Instruction& instruction);
  void backward(const Instruction& instruction);
  void weight_gradient(const Instruction& instruction);
  void free_or_recompute(const Instruction& instruction);
  void receive(const Instruction& instruction);
  void add_slot(const Instruction& instruction);
  /// Whether the group's gradients are reduce-scattered after each micro-batch.
  bool scatters_each(const Stage& stage, size_t group) const {
    return program_.zero.each_micro_batch && group < stage.scattered.size();
  }
  void check_group(const Instruction& instruction, const Stage& stage) const;
  void collective(const Instruction& instruction);
  void scatter_micro_batch(const Instruction& instruction, Stage& stage) const;
  void change_versions(const Instruction& instruction);
  void optimizer_step(const Instruction& instruction);
  void update(Stage& stage);
  // The end of a step, in check_end.cpp.
  bool sums_own(const Stage& stage, size_t group) const;
  void push(const Instruction& instruction);
  void combine(const Instruction& instruction);
  void meet(const Instruction& instruction);
  void tie(const Instruction& instruction);
  void norm();
  void pull();
  void require_sums(const Stage& stage) const;
  void check_before_update() const;
  void check_ends() const;

  const Program& program_;
  const size_t rank_;  ///< index among all programs
  const int replica_;
  const Interpreter& interpreter_;
  const SumTree& tree_;
  Channels& channels_;
  Replicas& replicas_;
  std::vector<Stage> stages_;
  std::vector<int> staleness_;
  size_t at_ = 0;
  bool stepped_ = false;
  bool combined_ = false, normed_ = false, pulled_ = false, met_ = false;
  std::map<OpCode, std::vector<bool>> tied_;  ///< [instruction][tied weight]: seen
  std::optional<int> filled_;  ///< stage whose groups the last pass filled; group instructions may follow
};

}  // namespace trireme
