// Stages, programs and ranks together: what runs steps, whoever owns the loop.
//
//   stages ──▶ groups of every stage ──▶ programs of all ranks, checked ──▶ Executor ──▶ update
//
// The trainer's Engine, Pipeline and parallelize() each make their stages and have one of these. (DataParallel and
// FullyShard do not: backward() is the user's, so they drive a GradientStore and a GroupReducer themselves.)
//
// Owner: those. Threads: one. Blocking and failure: as Executor. The constructor is collective over the model's ranks.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "trireme/program/check/check.h"
#include "trireme/program/step.h"
#include "trireme/runtime/executor.h"

namespace trireme {

/// Where a rank stands among those that compute the model.
struct StepPlace {
  int pipeline_rank = 0, replica = 0;
  /// Over the stages of the model, of numbers that only a stage's own ranks know. Empty where one rank has all stages.
  std::function<void(std::vector<int32_t>& of_stages)> sum_over_stages = {};
};

class StepEngine {
 public:
  /// `shape`: without groups of gradients, which the stages have.
  StepEngine(StepShape shape, const StepPlace& place, std::map<int, Stage> stages, const ExecutorOptions& options);

  /// The program of the shape; or, for the next step, with another exchange of gradients.
  const Program& program() const { return executor_.program(); }
  void set_exchange(GradientExchange exchange);
  StepTimes step(const Executor::Update& update) { return executor_.run(update); }
  /// Runs an asynchronous schedule without a flush over so many micro-batches of each replica. Throws UsageError where
  /// they are no whole number of rounds.
  StepTimes stream(const ScheduleShape& schedule, int num_micro_batches, const Executor::Update& update);
  /// Forward passes alone, so many of each lane: number k of lane l is number l · num_passes + k.
  void run_passes(int num_passes, const std::function<std::unique_ptr<StageMessages>(const Program&)>& messages,
                  const Executor::Pass& pass);
  /// Micro-batches of a step that this rank computes, in the order of their forward passes.
  const std::vector<int>& micro_batches() const { return micro_batches_; }
  const StepShape& shape() const { return shape_; }
  /// What the check of all ranks' programs has found.
  const CheckReport& report() const { return report_; }
  Executor& executor() { return executor_; }
  const Executor& executor() const { return executor_; }

 private:
  static StepShape with_groups(StepShape shape, const StepPlace& place, const std::map<int, Stage>& stages);
  Program lower(GradientExchange exchange);

  const StepPlace place_;
  const StepShape shape_;
  CheckReport report_;
  Executor executor_;
  std::vector<int> micro_batches_;
  std::map<GradientExchange, Program> programs_;  ///< that have been wanted
  std::optional<Stream> stream_;                  ///< if one has been wanted
  std::map<int, Program> forward_programs_;       ///< by their passes
  /// Kept where passes have failed, since their messages may still be under way.
  std::vector<std::unique_ptr<StageMessages>> pass_messages_;
};

}  // namespace trireme
