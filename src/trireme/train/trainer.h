// One worker's share of training a model: data in, steps, evaluation, and the state that a checkpoint holds.
//
// Owner: run_training() or a user's program. Threads: one; reading ahead and communication have their own. Blocking: as
// long as a step takes. Fails with Error that names step, rank and parameter where numbers go bad, with CommError where
// a peer does.
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
#include "trireme/data/open_data.h"
#include "trireme/models/fp8.h"
#include "trireme/runtime/executor.h"
#include "trireme/tensor/device.h"
#include "trireme/train/device_update.h"
#include "trireme/train/host_gradients.h"
#include "trireme/train/local_steps.h"
#include "trireme/train/loss_scale.h"
#include "trireme/train/model_part.h"
#include "trireme/train/momentum_exchange.h"
#include "trireme/train/optimizer.h"
#include "trireme/train/rank_groups.h"
#include "trireme/train/servers/server_aggregation.h"
#include "trireme/train/step_inputs.h"

namespace trireme {

/// What is summed over the micro-batches of a step beside gradients: these numbers, then the statistics.
enum StepValue : int64_t { kLoss, kStop, kNumValues };

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

struct Evaluation {
  double loss = 0;  ///< mean over all predictions
  double perplexity = 0;
  double accuracy = 0;
  int64_t num_samples = 0;
};

/// What a step found wrong, and where. The same on all ranks.
struct BadNumber {
  int rank = -1;
  int64_t micro_batch = -1;
  std::string parameter;  ///< the first in the order of the backward pass; "loss" where the loss itself is bad
  bool reproduced = false;
  std::string to_string(int64_t step) const;
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

class Trainer {
 public:
  Trainer(World& world, const Config& config, const OpenedData& data);
  ~Trainer();

  /// One optimizer step on the next batch. `stop` asks all workers to stop: the report says when one has.
  StepReport step(bool stop = false);
  /// On held-out data, in stored order; all workers share the work. `num_batches` of the global size at most.
  /// `told` hears how many of the samples are done, as far as this worker knows.
  Evaluation evaluate(int64_t num_batches, const std::function<void(int64_t done, int64_t samples)>& told = {});

  /// Logits of an input, in evaluation mode and the compute type, without gradients. On the training device. Collective
  /// over the ranks of a model.
  torch::Tensor predict(const torch::Tensor& input);

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
  const BatchPlan& plan() const { return plan_; }
  const RankGroups& groups() const { return groups_; }
  const ModelPart& part() const { return *part_; }
  /// Of this rank's part of the model.
  const ParameterStore& parameters() const { return part_->parameters(); }
  const Executor& executor() const { return *executor_; }
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
  const ServerAggregation* servers() const { return server_.get(); }
  int64_t steps_skipped() const { return loss_scale_.num_skipped + bad_steps_; }

  /// Of a parameter of the whole model (part().weights()), whole, for comparisons: its averaged gradient of the last
  /// step, unclipped (its momentum, where that travels); its value. Collective over the ranks of a model.
  torch::Tensor gradient(size_t weight) const;
  torch::Tensor weight(size_t weight) const;

  struct NamedTensor {
    std::string name;
    std::string group;     ///< "weights" or "optimizer"
    torch::Tensor tensor;  ///< undefined where replicas share it
    int entry = -1;        ///< of parameters(), where replicas share it
    std::function<torch::Tensor(size_t share)> of_share = {};
    std::vector<int64_t> sizes = {};
  };
  /// All that a checkpoint holds of this rank's stages, as views: master weights, buffers, optimizer state. Whole
  /// tensors and equal on all ranks that hold them, mesh tensors, or shares. With servers collective, and what it gives
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
  /// this trainer is, not where the checkpoint was.
  void restore(const std::string& meta, bool keep_position = false);

 private:
  /// What all ranks of a model must know before the update.
  struct Totals {
    double norm = 0;  ///< of the gradients' sums
    double loss = 0;  ///< of the micro-batches' losses
    bool stop = false;
  };
  std::map<int, Stage> make_stages();
  torch::Tensor forward(const ModelPart::StagePart& stage, const torch::Tensor& x, int micro_batch,
                        torch::Tensor values);
  /// predict(), but only the last stage has the result.
  torch::Tensor run_forward(const torch::Tensor& input, int64_t seq, int lane);
  void run_on_host(StepReport& report);
  void run_on_device(StepReport& report);
  bool can_capture() const;
  bool host_updates() const;
  torch::Tensor host_gradient(size_t share) const;
  void update_fp8_scales();
  std::vector<double> block_squares() const;
  std::vector<double> squares() const;
  Totals totals(double own_loss) const;
  void collect_gradients();
  void update_weights(int64_t update, double lr, double factor);
  void apply_gradients(StepReport& report);
  void meet_replicas(const StepReport& report);
  std::vector<torch::Tensor> own_tokens() const;
  void run_updates(StepReport& report);
  void update_stage(int number, const StepReport& report);
  void finish_updates(StepReport& report);
  void conclude(StepReport& report, bool loss_is_finite);
  std::optional<BadNumber> find_bad_number();
  [[noreturn]] void stop_for(const BadNumber& bad) const;
  void update_statistics(const ModelPart::StagePart& stage);
  SampleParts parts_to_read() const;
  void start_reading();
  int64_t num_updates() const { return executor_->program().num_updates; }
  std::vector<int> list_micro_batches() const;
  bool agree(bool flag);
  torch::Tensor values_of(const ModelPart::StagePart& stage) const { return executor_->values(stage.number); }
  torch::Tensor from_owner(size_t weight, const torch::Tensor& own) const;

  World& world_;
  const Config config_;
  const BatchPlan plan_;
  const OpenedData data_;
  const torch::Device device_;
  const torch::ScalarType compute_type_;
  const RankGroups groups_;
  std::unique_ptr<ModelPart> part_;
  std::unique_ptr<Executor> executor_;
  std::vector<int> micro_batches_;              ///< of a step, that this one computes
  std::unique_ptr<Optimizer> optimizer_;        ///< null where servers update
  std::unique_ptr<ServerAggregation> server_;   ///< null: gradients are summed between the workers
  std::unique_ptr<LocalSteps> local_;           ///< null: replicas are alike after every step
  std::unique_ptr<AdasumStep> adasum_;          ///< null but for Adasum
  std::unique_ptr<MomentumExchange> momentum_;  ///< null but for 1-bit Adam
  bool sends_momentum_ = false;                 ///< in this step, instead of gradients
  bool sums_alone_ = false;                     ///< gradients, over this replica only
  LossScale loss_scale_;
  std::unique_ptr<StepInputs> inputs_;  ///< null between the first and the last stage
  // On a GPU: the end of the step, the loss scale in its memory, and the whole step as a graph.
  std::unique_ptr<DeviceUpdate> device_update_;    ///< null where the host updates
  std::unique_ptr<HostGradients> host_gradients_;  ///< null but for an optimizer on the host
  torch::Tensor device_scale_;
  std::unique_ptr<Fp8Products> fp8_;  ///< null: products are in the compute type
  std::unique_ptr<DeviceGraph> graph_;
  std::function<void(const torch::Tensor& loss)> on_loss_;
  int64_t steps_here_ = 0;  ///< of this trainer, for the graph's warm-up
  int64_t steps_done_ = 0, samples_done_ = 0, bad_steps_ = 0;
  int64_t updates_done_ = 0;  ///< of the weights: Adam's t; a step that is skipped makes none
  bool stop_ = false;
  double gradient_factor_ = 1;  ///< from sums to averages, without clipping
  std::optional<double> clock_offset_;
  // Where a step has several updates.
  torch::Tensor loss_sum_;  ///< of the micro-batches' losses, a double
};

}  // namespace trireme
