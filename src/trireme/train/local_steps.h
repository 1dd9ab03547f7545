// Replicas that step alone and meet now and then, and gradients that Adasum combines: what replicas do with gradients
// that are not summed between them.
//
// [Note: Meetings]
// Between meetings every replica updates its weights with its own gradients; losses are still averaged over all. At a
// meeting replicas average their weights, or take an outer step (DiLoCo). Moments of the optimizer stay a replica's
// own. What others may see, a checkpoint above all, is the same on all replicas: so before it, and at the end of
// training, they settle: they meet, and average their moments too. Weights of GPUs meet in the host's memory, where
// DiLoCo keeps what it needs between meetings.
//
// Owner: the trainer. Threads: one. Blocking and failure: as the communicator.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "trireme/compress/local_sgd.h"
#include "trireme/compress/processor.h"
#include "trireme/config/config.h"
#include "trireme/runtime/executor.h"
#include "trireme/train/model_part.h"
#include "trireme/train/optimizer.h"

namespace trireme {

/// Where a replica has several partial sums of its gradients: their sum, in slot 0 of each stage.
void add_own_partials(const ModelPart& part, const Program& program, int replica);

/// Combines gradients over replicas by Adasum, where they lie.
///
/// Owner: the trainer. Threads: one. Blocking and failure: as the communicator.
class AdasumStep {
 public:
  /// The arguments must outlive it.
  AdasumStep(const ModelPart& part, Communicator& replicas);
  /// What lies in slot 0. Collective.
  void combine();
  uint64_t bytes_sent() const { return bytes_sent_; }

 private:
  const GradientStore& store_;
  Communicator& comm_;
  std::unique_ptr<Processor> own_processor_;  ///< null: the host's
  Processor& processor_;
  const std::vector<GroupLayout> layouts_;
  std::optional<Array<float>> scratch_;
  uint64_t bytes_sent_ = 0;
};

class LocalSteps {
 public:
  /// All replicas begin with the same weights. The arguments must outlive it.
  LocalSteps(const Config& config, Communicator& replicas, ParameterStore& parameters, const Optimizer& optimizer);

  /// The root of the mean square of the replicas' norms. Collective: not finite where one is not.
  double mean_norm(double own) const;
  /// After the update of a step, counted from 0: replicas meet where the plan says so. Collective.
  void after_step(int64_t step);
  /// [Note: Meetings]. Nothing where no step was made since. Collective.
  void settle();
  /// The weights have been replaced, the same on all replicas.
  void restart();

  /// What DiLoCo keeps: after settle(), and after restart().
  StatePieces save() const { return diloco_ ? diloco_->save() : StatePieces(); }
  void load(std::span<const StatePieces> by_replica);

  uint64_t bytes_sent() const { return bytes_sent_ + (diloco_ ? diloco_->bytes_sent() : 0); }

 private:
  using OfShare = std::function<torch::Tensor(size_t share)>;
  void meet(int64_t step);
  void average(std::span<float> values);
  void take(const OfShare& of_share);
  void give(const OfShare& of_share) const;
  GroupLayout layout() const;

  const Config& config_;
  Communicator& comm_;
  ParameterStore& parameters_;
  const Optimizer& optimizer_;
  const MeetingPlan plan_;
  std::optional<DiLoCo> diloco_;
  std::vector<float> flat_;  ///< of all shares, one behind the other
  int64_t last_step_ = 0;
  bool weights_differ_ = false, moments_differ_ = false;
  uint64_t bytes_sent_ = 0;
};

}  // namespace trireme
