// Brings stages, programs and ranks together to run steps, whoever owns the training loop.
//
//   stages ──▶ groups of every stage ──▶ programs of all ranks, checked ──▶ Executor ──▶ update
//
// Engine, Pipeline and parallelize() each make their stages and have one of these. DataParallel and FullyShard do not:
// the user calls backward(), so they drive a GradientStore and a GroupReducer themselves.
//
// Owner: those three. Threads: one. Blocking and failure: as Executor. The constructor is collective over the ranks
// that StepPlace::sum_over_stages sums over.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "trireme/program/check/check.h"
#include "trireme/program/step.h"
#include "trireme/runtime/executor.h"

namespace trireme {

/// A rank's position among the ranks that compute the model.
struct StepPlace {
  int pipeline_rank = 0, replica = 0;
  /// Sums, over the stages of the model, numbers that only the ranks of each stage know. Unset if one rank holds all
  /// stages.
  std::function<void(std::vector<int32_t>& of_stages)> sum_over_stages = {};
};

class StepEngine {
 public:
  /// `shape` comes without numbers of groups: they are taken from the stages.
  StepEngine(StepShape shape, const StepPlace& place, std::map<int, Stage> stages, const ExecutorOptions& options);

  /// The current program: that of the shape, until set_exchange() selects another exchange of gradients for the steps
  /// that follow. set_exchange() lowers and checks each program once.
  const Program& program() const { return executor_.program(); }
  void set_exchange(GradientExchange exchange);
  StepTimes step(const Executor::Update& update) { return executor_.run(update); }
  /// Runs an asynchronous schedule without a flush over so many micro-batches per replica. Throws UsageError unless
  /// they are the fewest that the stream can have plus a whole number of rounds, and for a schedule that cannot be a
  /// stream.
  StepTimes stream(const ScheduleShape& schedule, int num_micro_batches, const Executor::Update& update);
  /// Runs `num_passes` forward passes per lane, without gradients; pass k of lane l has number l · num_passes + k.
  /// `messages` makes the transport between stages for a program, or returns null without a pipeline.
  void run_passes(int num_passes, const std::function<std::unique_ptr<StageMessages>(const Program&)>& messages,
                  const Executor::Pass& pass);
  /// Micro-batches of a step that this rank computes in its first stage, in the order of their forward passes.
  const std::vector<int>& micro_batches() const { return micro_batches_; }
  const StepShape& shape() const { return shape_; }
  /// Findings of the check of all ranks' programs.
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
  std::map<GradientExchange, Program> programs_;  ///< those used so far
  std::optional<Stream> stream_;                  ///< set by the first stream()
  ScheduleShape stream_schedule_;                 ///< the schedule of stream_
  std::map<int, Program> forward_programs_;       ///< keyed by num_passes
  /// Kept after a failure, since their messages may still be in flight.
  std::vector<std::unique_ptr<StageMessages>> pass_messages_;
};

}  // namespace trireme
