// A model over the ranks of a world: its stages, the program of a step, and what an update does.
//
//   Engine engine(world, model, config);
//   for (…) fmt::print("loss {}\n", engine.step({inputs, targets}).loss);
//
// Trainer is an engine that reads its own samples. Owner: a user's program. Threads: one; communication has its own.
// Blocking: as long as a step takes. Fails with Error that names step, rank and parameter where numbers go bad, with
// CommError where a peer does.
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
  int64_t step = 0;  ///< steps done, this one among them
  double loss = 0;   ///< mean over the batch
  double gradient_norm = 0;
  double learning_rate = 0;
  bool skipped = false;      ///< gradients were not finite: the weights are as before
  std::string bad;           ///< why, where it was skipped for more than too large a loss scale
  bool stop_wanted = false;  ///< some worker was asked to stop
  double seconds = 0;
  double data_s = 0;     ///< waited for data
  double enqueue_s = 0;  ///< on a GPU: the host's own work, before it waits
  StepTimes times;
};

/// What a step found wrong, and where. The same on all ranks.
struct BadNumber {
  int rank = -1;
  int64_t micro_batch = -1;
  std::string parameter;  ///< the first in the order of the backward pass; "loss" where the loss itself is bad
  bool reproduced = false;
  std::string to_string(int64_t step) const;
  Where where(int64_t step) const;
};

/// What the passes of a step hold beside the state of training. Of this worker, at the most.
struct PassMemory {
  size_t kept_bytes = 0;  ///< from the forward pass of a micro-batch to its backward pass; 0 but for the last stage
  size_t most_bytes = 0;  ///< at any moment
};

/// Where the bytes of a worker's state are.
struct StateParts {
  size_t weights = 0;    ///< that the model computes with
  size_t gradients = 0;  ///< their sums
  size_t optimizer = 0;  ///< its own state, and the float32 weights where the model computes with others
  size_t buffers = 0;    ///< beside those: partial sums of gradients, groups that are gathered or on their way
  size_t sum() const { return weights + gradients + optimizer; }
};

class Engine {
 public:
  /// Trains `model`, of which it drops what this rank does not hold; make_model() makes the one that a config names.
  Engine(World& world, std::shared_ptr<Model> model, const Config& config);
  virtual ~Engine();
  Engine(const Engine&) = delete;

  /// One optimizer step on a batch of train.global_batch samples, along dim 0 of each tensor. Every rank may give the
  /// whole batch, and takes its own micro-batches of it; a rank between the first and the last stage may give nothing.
  /// `stop` asks all workers to stop: the report says when one has.
  StepReport step(const Inputs& batch, bool stop = false);
  /// Micro-batches of a step that this rank computes, by number: number m has the samples m · train.micro_batch on.
  const std::vector<int>& micro_batches() const { return steps_->micro_batches(); }

  /// What the model gives, such as logits, in evaluation mode and the compute type, without gradients. On the training
  /// device. Collective over the ranks of a model.
  Tensors predict(const Tensors& inputs);
  torch::Tensor predict(const torch::Tensor& input) { return predict(Tensors{input}).at(0); }

  /// From the next step on: when each instruction ran. The first call is collective.
  void set_tracing(bool on);
  /// Of the last step that was traced.
  StepTrace trace() const;

  int64_t steps_done() const { return steps_done_; }
  /// Updates that the weights have had: one a step, but none in a step that was skipped.
  int64_t updates_done() const { return updates_done_; }
  int64_t samples_done() const { return samples_done_; }
  Model& model() { return part_->model(); }
  const Config& config() const { return config_; }
  const Layout& layout() const { return layout_; }
  const RankGroups& groups() const { return groups_; }
  const ModelPart& part() const { return *part_; }
  /// Of this rank's part of the model.
  const ParameterStore& parameters() const { return part_->parameters(); }
  const StepEngine& steps() const { return *steps_; }
  const Executor& executor() const { return steps_->executor(); }
  const torch::Device& device() const { return device_; }
  /// What this worker has sent of gradients, weights and values to the other replicas, or to servers.
  size_t bytes_reduced() const;
  /// What it has sent of its part of the weights to replicas that compute with them.
  uint64_t bytes_gathered() const { return parameters().bytes_gathered(); }
  /// Weights, gradients and optimizer of this worker, not activations.
  StateParts state_parts() const;
  size_t state_bytes() const { return state_parts().sum(); }
  /// Computes the last step once more, alone and for nothing else, and counts. Zeros on a GPU. Collective along a
  /// pipeline. The gradients are then those of this worker alone: for the end of training.
  PassMemory measure_passes();
  /// Null where there are none.
  const ServerAggregation* servers() const { return policy_->servers(); }
  int64_t steps_skipped() const { return loss_scale_.num_skipped + bad_steps_; }

  /// Of a parameter of the whole model (part().weights()), whole, for comparisons: its averaged gradient of the last
  /// step, unclipped (its momentum, where that travels); its value. Collective over the ranks of a model.
  torch::Tensor gradient(size_t weight) const;
  torch::Tensor weight(size_t weight) const;

  struct NamedTensor {
    std::string name;
    std::string group;     ///< "weights" or "optimizer"
    torch::Tensor tensor;  ///< undefined where it is sharded
    int entry = -1;        ///< of parameters(), where it is sharded
    std::function<torch::Tensor(size_t shard)> of_shard = {};
    std::vector<int64_t> sizes = {};
  };
  /// All that a checkpoint holds of this rank's stages, as views: master weights, buffers, optimizer state. Whole
  /// tensors and equal on all ranks that hold them, mesh tensors, or shards. With servers collective, and what it gives
  /// holds until the next step.
  std::vector<NamedTensor> state() const;
  /// One of them, whole. Collective over those who hold parts of it.
  torch::Tensor gather(const NamedTensor& named) const;
  /// Takes this rank's part of a whole one.
  void fill(const NamedTensor& named, const torch::Tensor& whole);
  /// Whether all that this rank has of it is finite.
  bool is_finite(const NamedTensor& named) const;
  /// What this rank keeps beside state(): what compression has not sent yet, DiLoCo's outer optimizer.
  StatePieces pieces() const;
  /// After restore(): from those of all replicas, however many they were.
  void load_pieces(const std::vector<StatePieces>& by_replica);
  /// Position, counters and config as JSON.
  std::string meta() const;
  /// After the tensors of state() were filled: takes counters from `meta`. `keep_position`: goes on with the data where
  /// this engine is, not where the checkpoint was.
  virtual void restore(const std::string& meta, bool keep_position = false);

 protected:
  /// On the samples that inputs_ has. `start`: of the step, for its report.
  StepReport run_step(bool stop, Clock::time_point start);
  /// Forward passes in evaluation mode: number k of lane l, `num_passes` of each, is number l · num_passes + k. The
  /// ranks of the first stage are asked for inputs, and those of the last give outputs to `told`. Collective.
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
  int64_t seq_ = 0;  ///< of language: tokens of a sample

 private:
  std::map<int, Stage> make_stages();
  Tensors forward(const ModelPart::StagePart& stage, const Tensors& x, int micro_batch, torch::Tensor values);
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
  torch::Tensor device_scale_;        ///< the loss scale in a GPU's memory, where a captured graph reads it
  std::unique_ptr<Fp8Products> fp8_;  ///< null: products are in the compute type
  std::function<void(const torch::Tensor& loss)> on_loss_;
  int64_t steps_done_ = 0, bad_steps_ = 0;
  int64_t updates_done_ = 0;  ///< of the weights: Adam's t; a step that is skipped makes none
  bool stop_ = false;
  std::optional<double> clock_offset_;
};

}  // namespace trireme
