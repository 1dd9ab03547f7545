#include "trireme/program/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/program/data_parallel.h"
#include "trireme/program/pipeline_parts.h"

namespace trireme {
namespace {

template <typename T>
T of_stage(const std::vector<T>& values, int stage, T fallback) {
  if (values.empty()) return fallback;
  return values.size() == 1 ? values[0] : values[static_cast<size_t>(stage)];
}

void check(const PipelineShape& shape, int pipeline_rank, int replica) {
  const Schedule& schedule = shape.schedule;
  const auto num_stages = static_cast<size_t>(schedule.num_stages());
  const auto right_length = [&](const char* what, size_t length) {
    if (length > 1 && length != num_stages) {
      throw UsageError(fmt::format("{} values of {} for {} stages", length, what, num_stages));
    }
  };
  right_length("groups", shape.groups.size());
  right_length("recompute", shape.recompute.size());
  for (const int groups : shape.groups) {
    if (groups < 1) throw UsageError(fmt::format("a stage cannot have {} groups of gradients", groups));
  }
  if (schedule.num_micro_batches < 1 || schedule.num_micro_batches % schedule.micro_batches_in_update() != 0) {
    throw UsageError(fmt::format("{} micro-batches are no whole number of updates of {}", schedule.num_micro_batches,
                                 schedule.micro_batches_in_update()));
  }
  if (schedule.ranks.size() != static_cast<size_t>(schedule.num_ranks) || num_stages == 0) {
    throw UsageError(fmt::format("a schedule for {} ranks has {} lists", schedule.num_ranks, schedule.ranks.size()));
  }
  for (const int rank : schedule.rank_of_stage) {
    if (rank < 0 || rank >= schedule.num_ranks)
      throw UsageError(fmt::format("a stage is on rank {}, which is not there", rank));
  }
  for (int rank = 0; rank < schedule.num_ranks; ++rank) {
    for (const Instruction& i : schedule.ranks[static_cast<size_t>(rank)]) {
      if (i.stage < 0 || static_cast<size_t>(i.stage) >= num_stages || i.micro_batch < 0 ||
          i.micro_batch >= schedule.num_micro_batches) {
        throw UsageError(fmt::format("rank {}, {}: there are {} stages and {} micro-batches", rank, i.to_string(),
                                     num_stages, schedule.num_micro_batches));
      }
      if (schedule.rank_of_stage[static_cast<size_t>(i.stage)] != rank) {
        throw UsageError(fmt::format("rank {}, {}: that stage is on rank {}", rank, i.to_string(),
                                     schedule.rank_of_stage[static_cast<size_t>(i.stage)]));
      }
      if (!is_compute(i.op) && !is_send(i.op) && !is_receive(i.op)) {
        throw UsageError(
            fmt::format("rank {}, {}: a schedule has computations and messages alone", rank, i.to_string()));
      }
    }
  }
  if (!shape.replicas.empty() && static_cast<int>(shape.replicas.size()) != schedule.num_ranks) {
    throw UsageError(
        fmt::format("replicas of {} ranks for a pipeline of {}", shape.replicas.size(), schedule.num_ranks));
  }
  for (const int replicas : shape.replicas) {
    if (replicas > 0 && shape.num_replicas % replicas == 0) continue;
    throw UsageError(fmt::format("{} lanes cannot be split over {} replicas of a stage", shape.num_replicas, replicas));
  }
  if (pipeline_rank < 0 || pipeline_rank >= schedule.num_ranks || replica < 0 ||
      replica >= shape.replicas_of(pipeline_rank)) {
    throw UsageError(fmt::format("there is no rank {} of replica {}", pipeline_rank, replica));
  }
}

/// Writes the program of one rank.
class Lowering {
 public:
  Lowering(const PipelineShape& shape, const Messages& messages, int rank, int replica)
      : shape_(shape),
        schedule_(shape.schedule),
        messages_(messages),
        rank_(rank),
        lanes_(shape.num_replicas / shape.replicas_of(rank)),
        first_lane_(replica * lanes_),
        per_update_(schedule_.micro_batches_in_update()),
        leaf_size_(std::max(1, per_update_ * shape.num_replicas / shape.leaves())),
        // An update's sums are those of plain data parallelism over its micro-batches.
        sums_(sums_of({.num_micro_batches = per_update_ * shape.num_replicas,
                       .num_leaves = shape.leaves(),
                       .num_ranks = shape.replicas_of(rank),
                       .lanes = lanes_},
                      replica)),
        versions_(schedule_, rank),
        next_gradient_(static_cast<size_t>(schedule_.num_stages())) {}

  Program run() {
    program_.num_micro_batches = schedule_.num_micro_batches * shape_.num_replicas;
    program_.num_slots = sums_.leaves.num_slots;
    program_.num_ranks = shape_.replicas_of(rank_);
    program_.across = sums_.across;
    program_.pipeline_rank = rank_;
    program_.num_pipeline_ranks = schedule_.num_ranks;
    program_.num_updates = schedule_.num_micro_batches / per_update_;
    program_.rank_of_stage = schedule_.rank_of_stage;
    program_.replicas_of_rank = shape_.replicas;
    for (int stage = 0; stage < schedule_.num_stages(); ++stage) {
      program_.groups_of_stage.push_back(of_stage(shape_.groups, stage, 1));
      if (schedule_.rank_of_stage[static_cast<size_t>(stage)] == rank_) {
        program_.num_groups += program_.groups_of_stage.back();
      }
    }
    const std::vector<Instruction> list = messages_.of(rank_, shape_.receive_ahead);
    for (size_t at = 0; at < list.size();) {
      const auto is_next = [](const Instruction& i) { return !is_send(i.op); };
      const auto end = static_cast<size_t>(
          std::find_if(list.begin() + static_cast<std::ptrdiff_t>(at) + 1, list.end(), is_next) - list.begin());
      for (lane_ = 0; lane_ < lanes_; ++lane_) {
        finish_compute();
        for (size_t i = at; i < end; ++i) write(list[i], next_compute(list, i));
      }
      at = end;
    }
    finish_compute();
    if (program_.num_updates == 1) put({.op = OpCode::kOptimizerStep});
    return std::move(program_);
  }

 private:
  void put(const Instruction& instruction) { program_.instructions.push_back(instruction); }

  static const Instruction* next_compute(const std::vector<Instruction>& list, size_t at) {
    for (size_t i = at + 1; i < list.size(); ++i) {
      if (is_compute(list[i].op)) return &list[i];
    }
    return nullptr;
  }

  bool is_last_lane() const { return lane_ + 1 == lanes_; }

  int number_of(int micro_batch) const {
    const int update = micro_batch / per_update_;
    return (update * shape_.num_replicas + first_lane_ + lane_) * per_update_ + micro_batch % per_update_;
  }

  bool recomputes(int stage) const { return of_stage(shape_.recompute, stage, false); }

  void write(const Instruction& scheduled, const Instruction* after) {
    Instruction instruction = scheduled;
    const int stage = scheduled.stage, micro_batch = scheduled.micro_batch;
    instruction.micro_batch = number_of(micro_batch);
    if (!is_compute(scheduled.op)) return put(instruction);
    const int version = versions_.of(stage, micro_batch);
    const auto uses_weights = [&](const Instruction& compute) {
      if (versions_.newest(stage) != version) {
        put({.op = OpCode::kRestoreWeights, .stage = stage, .version = version});
      }
      put(compute);
    };
    if (scheduled.op == OpCode::kForward) {
      uses_weights(instruction);
      // If the backward pass follows at once, freeing the activations would save nothing.
      const bool at_once = after != nullptr && makes_input_gradient(after->op) && after->stage == stage &&
                           after->micro_batch == micro_batch && lanes_ == 1;
      if (recomputes(stage) && !at_once) {
        freed_.push_back({stage, instruction.micro_batch});
        after_sends_.push_back({.op = OpCode::kFree, .stage = stage, .micro_batch = instruction.micro_batch});
      }
    } else {
      const auto freed = std::find(freed_.begin(), freed_.end(), std::pair{stage, instruction.micro_batch});
      if (makes_input_gradient(scheduled.op) && freed != freed_.end()) {
        freed_.erase(freed);
        uses_weights({.op = OpCode::kRecompute, .stage = stage, .micro_batch = instruction.micro_batch});
      }
      if (makes_weight_gradient(scheduled.op)) fill_slot(instruction, micro_batch);
      if (scheduled.op == OpCode::kWeightGrad) {
        put(instruction);
      } else {
        uses_weights(instruction);
      }
    }
    if (makes_weight_gradient(scheduled.op)) sum(stage, micro_batch);
    if (!is_last_lane()) return;
    if (scheduled.op != OpCode::kWeightGrad && versions_.used(stage, micro_batch)) {
      after_sends_.push_back({.op = OpCode::kFree, .stage = stage, .version = version});
    }
    if (makes_weight_gradient(scheduled.op) && (micro_batch + 1) % per_update_ == 0) update(stage);
  }

  /// Puts the instructions that were deferred until after a computation's sends, for which other ranks wait.
  void finish_compute() {
    for (const Instruction& instruction : after_sends_) put(instruction);
    after_sends_.clear();
  }

  /// The leaf of a micro-batch in the current lane.
  const LeafStep& leaf_step(int micro_batch) const {
    return sums_.leaves.steps[static_cast<size_t>(micro_batch % per_update_ / leaf_size_ * lanes_ + lane_)];
  }

  void fill_slot(Instruction& instruction, int micro_batch) {
    int& next = next_gradient_[static_cast<size_t>(instruction.stage)];
    if (micro_batch != next) {
      throw Error(
          fmt::format("rank {}, {}: weight gradients of a stage are summed in the order of micro-batches, and {} "
                      "is the next",
                      rank_, instruction.to_string(), next));
    }
    if (is_last_lane()) ++next;
    instruction.slot = leaf_step(micro_batch).slot;
    instruction.add = micro_batch % leaf_size_ > 0;
  }

  /// After the last micro-batch of a leaf, adds the slots that are complete; after the last of an update, all-reduces.
  void sum(int stage, int micro_batch) {
    if ((micro_batch + 1) % leaf_size_ != 0) return;
    const bool last = (micro_batch + 1) % per_update_ == 0 && is_last_lane();
    for (int group = 0; group < program_.groups_of(stage); ++group) {
      for (const Addition& addition : leaf_step(micro_batch).additions) {
        put({.op = OpCode::kAddSlot,
             .stage = stage,
             .slot = addition.into,
             .from_slot = addition.from,
             .group = group});
      }
      if (last && program_.num_ranks > 1) put({.op = OpCode::kAllReduce, .stage = stage, .group = group});
    }
  }

  void update(int stage) {
    if (program_.num_updates == 1) return;
    const int version = versions_.newest(stage);
    if (versions_.update(stage)) {
      after_sends_.push_back({.op = OpCode::kStashWeights, .stage = stage, .version = version});
    }
    after_sends_.push_back({.op = OpCode::kOptimizerStep, .stage = stage, .version = version + 1});
  }

  const PipelineShape& shape_;
  const Schedule& schedule_;
  const Messages& messages_;
  const int rank_, lanes_, first_lane_, per_update_, leaf_size_;
  const DataParallelSums sums_;
  WeightVersions versions_;
  int lane_ = 0;                            ///< current lane, counted from this rank's first
  std::vector<int> next_gradient_;          ///< per stage: next micro-batch
  std::vector<std::pair<int, int>> freed_;  ///< (stage, micro-batch) to recompute
  std::vector<Instruction> after_sends_;
  Program program_;
};

}  // namespace

Program lower_pipeline(const PipelineShape& shape, int pipeline_rank, int replica) {
  check(shape, pipeline_rank, replica);
  return Lowering(shape, Messages(shape.schedule), pipeline_rank, replica).run();
}

std::vector<Program> lower_pipeline_ranks(const PipelineShape& shape, int replica) {
  check(shape, 0, replica);
  const Messages messages(shape.schedule);
  std::vector<Program> programs;
  for (int rank = 0; rank < shape.schedule.num_ranks; ++rank) {
    programs.push_back(Lowering(shape, messages, rank, replica).run());
  }
  return programs;
}

int PipelineShape::num_programs() const {
  return replicas.empty() ? num_replicas * schedule.num_ranks : std::accumulate(replicas.begin(), replicas.end(), 0);
}

std::vector<Program> lower_pipeline_all(const PipelineShape& shape) {
  std::vector<Program> programs;
  if (!shape.replicas.empty()) {
    const Messages messages(shape.schedule);
    for (int rank = 0; rank < shape.schedule.num_ranks; ++rank) {
      for (int replica = 0; replica < shape.replicas_of(rank); ++replica) {
        check(shape, rank, replica);
        programs.push_back(Lowering(shape, messages, rank, replica).run());
      }
    }
    return programs;
  }
  for (int replica = 0; replica < shape.num_replicas; ++replica) {
    for (Program& program : lower_pipeline_ranks(shape, replica)) programs.push_back(std::move(program));
  }
  return programs;
}

}  // namespace trireme
