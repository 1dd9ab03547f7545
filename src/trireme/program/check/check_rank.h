// One rank under check: goes through its list as far as the others let it.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>

#include "trireme/program/check/check.h"
#include "trireme/program/check/check_shared.h"

namespace trireme {

/// Where each program stands among all: replica by replica; where ranks differ in their replicas, rank by rank.
class ProgramPlaces {
 public:
  explicit ProgramPlaces(const Program& any);
  size_t count() const { return rank_of_.size(); }
  int rank_of(size_t number) const { return rank_of_[number]; }  ///< along the pipeline
  int replica_of(size_t number) const { return replica_of_[number]; }
  size_t number_of(int rank, int replica) const;

 private:
  std::vector<int> rank_of_, replica_of_;
  std::vector<size_t> first_of_rank_;  ///< number of its replica 0
  size_t between_replicas_ = 1;
};

class RankCheck {
 public:
  RankCheck(const Program& program, size_t number, const ProgramPlaces& places, const SumTree& tree, Channels& channels,
            Replicas& replicas, const CheckOptions& options);

  /// As far as it can; true if it got on. Throws Error.
  bool advance();
  bool is_done() const { return at_ == program_.instructions.size(); }
  /// "rank 1 waits at Forward … for …"
  std::string waits_for() const;
  /// After the last instruction. Throws Error for what is missing.
  void finish();
  /// Of the rank's stages, in order.
  const std::vector<int>& staleness() const { return staleness_; }

 private:
  /// A micro-batch in a stage.
  struct Work {
    bool forwarded = false, freed = false, input_gradient = false, weight_gradient = false;
    bool sent_activation = false, sent_gradient = false, posted_activation = false, posted_gradient = false;
    int version = 0;
  };
  struct Stage {
    int number = -1;
    std::unordered_map<int, Work> work;          ///< by micro-batch
    std::vector<std::vector<PartialSum>> slots;  ///< [slot][group]
    std::vector<bool> reduced;                   ///< groups
    std::vector<bool> stashed;                   ///< versions
    int newest = 0, restored = -1, oldest_used = -1;
    // Of the groups that replicas share, which are the first.
    std::vector<bool> gathered;               ///< whether the whole weights are here, as they were last updated
    std::vector<std::vector<int>> scattered;  ///< micro-batches that the shares hold, where each is scattered at once
  };

  [[noreturn]] void fail(const std::string& cause) const;
  void require(bool truth, const char* cause) const {
    if (!truth) fail(cause);
  }
  /// The other end of a message to or from that rank of the pipeline.
  int holder(int pipeline_rank, int micro_batch) const;
  Stage& stage_of(const Instruction& instruction);
  Work& work_of(const Instruction& instruction);
  /// Whether the message has been sent, where one is needed; fails where it is not received.
  bool has_arrived(const Instruction& instruction, bool gradient, bool posted, bool local_is_there);
  int use_weights(Stage& stage);
  /// ZeRO's third stage frees weights behind each pass.
  void end_pass(Stage& stage, OpCode op) const;

  bool step(const Instruction& instruction);
  bool run(const Instruction& instruction);
  bool forward(const Instruction& instruction);
  bool backward(const Instruction& instruction);
  void weight_gradient(const Instruction& instruction);
  void free_or_recompute(const Instruction& instruction);
  bool send(const Instruction& instruction);
  void receive(const Instruction& instruction);
  void add_slot(const Instruction& instruction);
  /// The group's gradients go to the replicas' shares micro-batch by micro-batch.
  bool scatters_each(const Stage& stage, size_t group) const {
    return program_.zero.each_micro_batch && group < stage.scattered.size();
  }
  void check_group(const Instruction& instruction, const Stage& stage) const;
  void collective(const Instruction& instruction);
  void scatter_micro_batch(const Instruction& instruction, Stage& stage) const;
  void change_versions(const Instruction& instruction);
  bool optimizer_step(const Instruction& instruction);
  void update(Stage& stage);

  const Program& program_;
  const ProgramPlaces& places_;
  const int rank_, replica_;  ///< rank_: of all programs
  const SumTree& tree_;
  Channels& channels_;
  Replicas& replicas_;
  const CheckOptions& options_;
  std::vector<Stage> stages_;
  std::vector<int> staleness_;
  size_t at_ = 0;
  bool stepped_ = false;
  std::optional<int> filled_;  ///< stage of the pass whose groups are full: group instructions stand behind it
  std::string waiting_for_;
};

}  // namespace trireme
