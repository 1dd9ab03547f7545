// A model trained over the ranks of a world: its pipeline stages, the program of a step, and the update of its weights.
//
//   Engine engine(world, model, config);
//   for (…) std::printf("loss %g\n", engine.step({{images, words}, {captions}}).loss);
//
// Trainer is an engine that reads its own samples. Owner: the user's program; the world must outlive it. Threads: one;
// communication runs on its own threads. Blocking: step() blocks for the whole step. Failure: throws Error, with step,
// rank and parameter, when numbers are not finite; CommError when a peer fails.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/world.h"
#include "trireme/config/check.h"
#include "trireme/config/config.h"
#include "trireme/models/fp8.h"
#include "trireme/models/model.h"
#include "trireme/runtime/step_engine.h"
#include "trireme/tensor/device.h"
#include "trireme/train/model_part.h"
#include "trireme/train/rank_groups.h"
#include "trireme/train/step_end.h"
#include "trireme/train/step_inputs.h"
#include "trireme/train/update_policy.h"

namespace trireme {

struct StepReport {
  int64_t step = 0;  ///< steps completed, including this one
  double loss = 0;   ///< mean over the batch
  double gradient_norm = 0;
  double learning_rate = 0;
  bool skipped = false;      ///< loss or gradients were not finite; the weights are unchanged, except with PipeDream
  std::string bad;           ///< why the step was bad, unless the loss scale was merely too large; empty otherwise
  bool stop_wanted = false;  ///< some worker was asked to stop
  double seconds = 0;
  double data_s = 0;     ///< time spent waiting for data
  double enqueue_s = 0;  ///< host time until it waits for the GPU; 0 on the CPU
  StepTimes times;
};

/// The first bad number of a step and where it occurred. The same on all ranks.
struct BadNumber {
  int rank = -1;
  int64_t micro_batch = -1;
  std::string parameter;  ///< the first in the order of the backward pass; "loss" if the loss itself is not finite
  bool reproduced = false;
  std::string to_string(int64_t step) const;
  Where where(int64_t step) const;
};

/// Peak memory of a step's passes on this worker, on top of the training state.
struct PassMemory {
  size_t kept_bytes = 0;  ///< kept from a micro-batch's forward pass for its backward pass; 0 except on the last stage
  size_t most_bytes = 0;  ///< peak
};

/// Bytes of a worker's training state, by kind.
struct StateParts {
  size_t weights = 0;    ///< the weights used for computing
  size_t gradients = 0;  ///< their gradient sums
  size_t optimizer = 0;  ///< the optimizer's own state, and float32 masters if the model computes in another dtype
  size_t buffers = 0;    ///< everything else: partial gradient sums, weights being gathered, messages in flight
  size_t sum() const { return weights + gradients + optimizer; }
};

class Engine {
 public:
  /// Trains `model`, and drops the layers that this rank does not hold, so use model() from now on; build_model() makes
  /// the model that a config names. Every rank must build the same weights. Collective. Sets the process's number of
  /// threads to train.threads (torch::set_num_threads). Throws UsageError for a config that cannot be, and where ranks
  /// have built different models.
  Engine(World& world, std::shared_ptr<Model> model, const Config& config);
  virtual ~Engine();
  Engine(const Engine&) = delete;

  /// Runs one optimizer step on a batch of train.global_batch samples, along dim 0 of each tensor. Every rank may pass
  /// the whole batch and uses its own micro-batches of it; a rank between the first and the last stage may pass
  /// nothing. `stop` asks all workers to stop; the report says when any has.
  StepReport step(const Inputs& batch, bool stop = false);
  /// Numbers of the micro-batches that this rank computes in a step: micro-batch m starts at sample m ·
  /// train.micro_batch.
  const std::vector<int>& micro_batches() const { return steps_->micro_batches(); }

  /// Returns the model's outputs, such as logits, on the training device; runs in evaluation mode and the compute type,
  /// without gradients, for any number of samples. Collective over the ranks of a model, which all get the outputs, and
  /// with ZeRO also over the ranks that share its weights: simply call it on all ranks.
  Tensors predict(const Tensors& inputs);
  torch::Tensor predict(const torch::Tensor& input) { return predict(Tensors{input}).at(0); }

  /// From the next step on, records when each instruction ran. The first call that turns it on is collective.
  void set_tracing(bool on);
  /// The trace of the last step that was traced.
  StepTrace trace() const;

  int64_t steps_done() const { return steps_done_; }
  /// Updates of the weights: one per step (more with PipeDream), none in a skipped step.
  int64_t updates_done() const { return updates_done_; }
  int64_t samples_done() const { return samples_done_; }
  Model& model() { return part_->model(); }
  const Config& config() const { return config_; }
  const Layout& layout() const { return layout_; }
  const RankGroups& groups() const { return groups_; }
  const ModelPart& part() const { return *part_; }
  /// The store of this rank's part of the model.
  const ParameterStore& parameters() const { return part_->parameters(); }
  const StepEngine& steps() const { return *steps_; }
  const Executor& executor() const { return steps_->executor(); }
  const torch::Device& device() const { return device_; }
  /// Bytes of gradients, weights and values that this worker has sent to other replicas or to servers.
  size_t bytes_reduced() const;
  /// Bytes of its weight shards that it has sent to replicas that compute with them.
  uint64_t bytes_gathered() const { return parameters().bytes_gathered(); }
  /// Bytes of this worker's weights, gradients and optimizer state; activations are not included.
  StateParts state_parts() const;
  size_t state_bytes() const { return state_parts().sum(); }
  /// Computes the last step again on this worker alone, to measure its memory. Returns zeros on a GPU. Collective along
  /// a pipeline. Afterwards the gradients are those of this worker alone, so call it at the end of training.
  PassMemory measure_passes();
  /// Null unless parameter servers are used.
  const ServerAggregation* servers() const { return policy_->servers(); }
  int64_t steps_skipped() const { return loss_scale_.num_skipped + bad_steps_; }

  /// The whole tensor of a parameter, numbered as in part().weights(), for comparisons: its averaged gradient of the
  /// last step, unclipped (its momentum, if momenta are exchanged), and its value. Collective over the ranks of a
  /// model, and with ZeRO over the ranks that share its weights.
  torch::Tensor gradient(size_t weight) const;
  torch::Tensor weight(size_t weight) const;

  struct NamedTensor {
    std::string name;
    std::string group;     ///< "weights" or "optimizer"
    torch::Tensor tensor;  ///< undefined if it is sharded
    int entry = -1;        ///< index in parameters(), if it is sharded
    std::function<torch::Tensor(size_t shard)> of_shard = {};
    std::vector<int64_t> sizes = {};
  };
  /// Everything that a checkpoint holds of this rank's stages, as views: master weights, buffers, optimizer state. Each
  /// is a whole tensor, equal on all ranks that hold it, a mesh tensor, or shards. With servers it is collective, and
  /// the result is valid until the next step.
  std::vector<NamedTensor> state() const;
  /// Returns the whole tensor. Collective over the ranks that hold parts of it.
  torch::Tensor gather(const NamedTensor& named) const;
  /// Copies this rank's part out of the whole tensor.
  void fill(const NamedTensor& named, const torch::Tensor& whole);
  /// Whether every element that this rank holds is finite.
  bool is_finite(const NamedTensor& named) const;
  /// State that this rank keeps in addition to state(): the residual of compression, DiLoCo's outer optimizer.
  StatePieces pieces() const;
  /// Call it after restore(), with the pieces of all replicas of the saved run, however many there were.
  void load_pieces(const std::vector<StatePieces>& by_replica);
  /// Data position, counters and config as JSON.
  std::string meta() const;
  /// Call it after the tensors of state() have been filled: takes the counters from `meta`. With `keep_position` the
  /// data continue from this engine's position, not from the checkpoint's.
  virtual void restore(const std::string& meta, bool keep_position = false);

 protected:
  /// Runs a step on the samples in inputs_. `start` is when the step began, for its report.
  StepReport run_step(bool stop, Clock::time_point start);
  /// Runs forward passes in evaluation mode, `num_passes` per lane: pass k of lane l has number l · num_passes + k.
  /// Ranks with the first stage call `inputs`; ranks with the last stage pass the outputs to `told`. Collective.
  void run_passes(int num_passes, int64_t seq, const std::function<Tensors(int64_t pass)>& inputs,
                  const std::function<void(int64_t pass, const Tensors& outputs)>& told);

  World& world_;
  const Config config_;
  const Layout layout_;
  const torch::Device device_;
  const torch::ScalarType compute_type_;
  const RankGroups groups_;
  std::unique_ptr<ModelPart> part_;
  std::unique_ptr<StepEngine> steps_;
  std::unique_ptr<UpdatePolicy> policy_;
  std::unique_ptr<StepInputs> inputs_;
  int64_t samples_done_ = 0;
  int64_t seq_ = 0;  ///< sequence length, for language models

 private:
  std::map<int, Stage> make_stages();
  Tensors forward(const StageSet::Stage& stage, const Tensors& x, int micro_batch, torch::Tensor values);
  StepTimes run_program(StepReport& report);
  void run_update(const Instruction& instruction, StepReport& report);
  void update_fp8_scales();
  std::vector<torch::Tensor> own_tokens() const;
  void conclude(const StepEnd& end, StepReport& report);
  std::string blame(const StepEnd& end);
  std::optional<BadNumber> find_bad_number();
  int64_t num_updates() const { return steps_->program().num_updates; }
  bool agree(bool flag);
  torch::Tensor from_owner(size_t weight, const torch::Tensor& own) const;

  LossScale loss_scale_;
  torch::Tensor device_scale_;        ///< the loss scale in GPU memory, where a captured graph reads it
  std::unique_ptr<Fp8Products> fp8_;  ///< null: matmuls run in the compute type
  std::function<void(const torch::Tensor& loss)> on_loss_;
  int64_t steps_done_ = 0, bad_steps_ = 0;
  int64_t updates_done_ = 0;  ///< updates of the weights, Adam's t; a skipped step does not count
  bool stop_ = false;
  std::optional<double> clock_offset_;
};

}  // namespace trireme
