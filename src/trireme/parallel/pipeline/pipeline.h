// Pipeline parallelism for a sequence of layers: each rank holds some of them, micro-batches pass through all.
//
//   Pipeline pipeline(world.comm(), model, {.schedule = "1f1b", .num_micro_batches = 8});
//   torch::optim::AdamW optimizer(pipeline.parameters(), 1e-3);     // of this rank's layers
//   for (…) {
//     const double loss = pipeline.step(input, target, loss_of);    // forward and backward of all micro-batches
//     optimizer.step();
//   }
//
// The asynchronous schedules (pipedream, pipedream-vertical-sync, pipedream-2bw) update weights while micro-batches are
// under way, so step() itself calls the optimizer, several times:
//
//   pipeline.step(input, target, loss_of, [&] { optimizer.step(); });
//
// With replicas, data parallelism is around it: ranks are numbered replica by replica, and in each along the pipeline;
// every replica has its own part of the batch. Weights are bit for bit those of one rank that adds the micro-batches'
// gradients along the same tree ([Note: Leaves]), whatever the schedule.
//
// A parameter that layers of several stages have belongs to the first of these ([Note: Tied weights]), which alone has
// it among its parameters(); the others have copies, which step() refreshes before it computes.
//
// Owner: the caller; it must be destroyed before the world. Threads: one. Blocking: constructor and step(), which all
// ranks call, every wait with the communicator's timeout. Fails with UsageError, CommError, or what the layers throw,
// with rank, instruction, stage and micro-batch; after that a pipeline can only be destroyed. docs/pipelines.md says
// more.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/program/schedules/partition.h"
#include "trireme/runtime/stage_set.h"
#include "trireme/runtime/step_engine.h"

namespace trireme {

/// Equal on all ranks; the constructor checks it.
struct PipelineOptions {
  std::string schedule = "1f1b";     ///< "naive", "gpipe", "interleaved", "zb-h1", …: docs/programs.md
  int num_micro_batches = 1;         ///< into which each replica cuts its part of the batch
  int num_replicas = 1;              ///< the pipeline has as many ranks as there are for each
  int interleave = 0;                ///< stages a rank, for "interleaved"
  int update_every = 0;              ///< asynchronous schedules: micro-batches of a replica in an update; 0: the least
  std::string split = "";            ///< layers of each stage, "4,4" or "0-3,4-7"; empty: by costs
  std::vector<double> costs = {};    ///< of each layer; empty: its parameters
  std::vector<bool> recompute = {};  ///< activations instead of keeping them: one a stage, or one for all
  int num_leaves = 0;                ///< of an update's tree of sums, over all replicas; 0: one a micro-batch
  bool average = true;               ///< over micro-batches and replicas; false: losses and gradients are summed
  double bucket_mb = 4;              ///< MiB of gradients that travel between replicas together
  uint64_t seed = 0;                 ///< of RandomScope
};

class Pipeline {
 public:
  /// The loss of a micro-batch, a scalar.
  using Loss = std::function<torch::Tensor(const torch::Tensor& output, const torch::Tensor& target)>;

  /// All ranks give the whole model; each uses its own layers of it. Replicas begin with the weights of the first.
  Pipeline(Communicator& comm, torch::nn::Sequential model, PipelineOptions options);
  Pipeline(Communicator& comm, std::vector<torch::nn::AnyModule> layers, PipelineOptions options);
  /// Gradients that it has given out become copies.
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;

  /// Changes parameters() by their gradients, in place: an optimizer's step.
  using Update = std::function<void()>;

  /// Puts this step's gradients into the `.grad` of parameters() and returns the loss, the same on all ranks. `input`
  /// and `target` are this replica's part of the batch, cut along dim 0; the first is read by the rank of the first
  /// stage, the second by that of the last, and others may give none. `update`, where there is one, is called when the
  /// gradients are there: by synchronous schedules once, at the end; by asynchronous ones, which need it, after each
  /// update's micro-batches, and `.grad` holds only what that update is made of, only until it returns.
  double step(const torch::Tensor& input, const torch::Tensor& target, const Loss& loss, const Update& update = {});

  /// A micro-batch of this replica by its number, from 0.
  using Samples = std::function<torch::Tensor(int64_t micro_batch)>;
  /// Trains on a stream of micro-batches with an asynchronous schedule: the pipeline fills once and drains at the end,
  /// instead of at every step ([Note: Streams]). The bits are those of one step() with as many micro-batches. `inputs`
  /// is called by the rank of the first stage and `targets` by that of the last, in the order of numbers. Returns the
  /// mean loss (with `average`; else the sum), the same on all ranks.
  double stream(int64_t num_micro_batches, const Samples& inputs, const Samples& targets, const Loss& loss,
                const Update& update);

  /// That this rank trains. Names are those of the whole model: "3.weight"; of a parameter with several, the first.
  std::vector<torch::Tensor> parameters() const;
  const std::vector<std::pair<std::string, torch::Tensor>>& named_parameters() const { return parameters_; }

  const Partition& partition() const { return partition_; }
  const Program& program() const { return steps_->program(); }
  /// What the checker has found: peaks of memory.
  const CheckReport& report() const { return steps_->report(); }
  int pipeline_rank() const { return pipeline_rank_; }
  int replica() const { return replica_; }
  bool has_first_stage() const;
  bool has_last_stage() const;

 private:
  void check_options() const;
  void cut();
  std::vector<StageSources> list_sources() const;
  std::vector<TiedParameter> find_tied(const std::vector<StageSources>& stages) const;
  void check_same_everywhere(const std::vector<StageSources>& stages) const;
  void split_ranks();
  void hold(std::vector<StageSources> stages, std::vector<TiedParameter> tied);
  std::map<int, Stage> make_stages();
  torch::Tensor micro_batch_of(const char* what, const torch::Tensor& batch, int micro_batch) const;
  torch::Tensor forward(LayerRange range, const torch::Tensor& x, int micro_batch);
  void give_gradients();
  void run_update(const Update& update);
  int own_number_of(int micro_batch) const;
  int rank_of(int stage) const { return schedule().rank_of_stage[static_cast<size_t>(stage)]; }
  const Schedule& schedule() const { return shape_.pipeline.schedule; }
  bool owns(int stage) const { return rank_of(stage) == pipeline_rank_; }
  /// Number of this rank's stages before one.
  size_t held_before(int stage) const;

  Communicator& comm_;
  const PipelineOptions options_;
  std::vector<torch::nn::AnyModule> layers_;
  torch::Device device_{torch::kCPU};
  StepShape shape_;
  Partition partition_;
  int pipeline_rank_ = 0, replica_ = 0;
  uint64_t num_steps_ = 0;
  // The step or stream under way.
  Samples inputs_, targets_;
  const Loss* loss_ = nullptr;
  std::function<void(int micro_batch, const torch::Tensor& loss)> on_loss_;

  std::vector<std::pair<std::string, torch::Tensor>> parameters_;
  std::unique_ptr<StageSet> held_;
  std::unique_ptr<TiedWeights> tied_weights_;
  std::unique_ptr<StepEngine> steps_;
  // Last, so that they end first: messages may be under way where a step has failed.
  std::unique_ptr<Communicator> replicas_;
  std::unique_ptr<Communicator> along_;
};

}  // namespace trireme
