// Pipeline parallelism for a sequence of layers: each rank holds some of them, and micro-batches pass through all.
//
//   Pipeline pipeline(world.comm(), model, {.schedule = "1f1b", .num_micro_batches = 8});
//   torch::optim::AdamW optimizer(pipeline.parameters(), 1e-3);     // for this rank's layers
//   for (…) {
//     const double loss = pipeline.step(input, target, loss_of);    // forward and backward of all micro-batches
//     optimizer.step();
//   }
//
// The asynchronous schedules (pipedream, pipedream-vertical-sync, pipedream-2bw) update weights while micro-batches are
// in flight, so step() itself calls the optimizer, several times:
//
//   pipeline.step(input, target, loss_of, [&] { optimizer.step(); });
//
// With replicas, this is combined with data parallelism: ranks are numbered replica by replica, and along the pipeline
// within each; every replica has its own part of the batch. Weights are bit-equal to those of one rank that adds the
// micro-batches' gradients along the same tree ([Note: Leaves]), whatever the schedule.
//
// A parameter that is used by layers of several stages belongs to the first of them ([Note: Tied weights]); only that
// stage has it among its parameters(). The others have copies, which step() refreshes before it computes.
//
// Owner: the caller, who destroys it before the world. Threads: one. Blocking: the constructor, step() and stream(),
// which all ranks call, every wait with the communicator's timeout. Fails with UsageError, CommError, or what the
// layers throw, with rank, instruction, stage and micro-batch in the message; after that a pipeline can only be
// destroyed. docs/pipelines.md says more.
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

/// Must be equal on all ranks; the constructor checks it.
struct PipelineOptions {
  std::string schedule = "1f1b";   ///< "naive", "gpipe", "interleaved", "zb-h1", …: docs/programs.md
  int num_micro_batches = 1;       ///< number into which each replica cuts its part of the batch
  int num_replicas = 1;            ///< must divide the number of ranks; a pipeline has the ranks of one replica
  int interleave = 0;              ///< stages per rank, for "interleaved"; 0: the schedule's default
  int update_every = 0;            ///< micro-batches per update and replica, for asynchronous schedules; 0: the fewest
  std::string split = "";          ///< layers of each stage, "4,4" or "0-3,4-7"; empty: by costs
  std::vector<double> costs = {};  ///< cost of each layer; empty: its number of parameters
  std::vector<bool> recompute = {};  ///< recompute activations: one per stage, or one for all; empty: none
  int num_leaves = 0;                ///< leaves of an update's sum, over all replicas; 0: one per micro-batch
  bool average = true;               ///< false: losses and gradients are summed over micro-batches and replicas
  double bucket_mb = 4;              ///< MiB of gradients that are reduced over replicas at once
  uint64_t seed = 0;                 ///< seed of random numbers in layers (RandomScope)
};

class Pipeline {
 public:
  /// The loss of a micro-batch, a scalar.
  using Loss = std::function<torch::Tensor(const torch::Tensor& output, const torch::Tensor& target)>;

  /// All ranks pass the whole model; each uses its own layers of it. Replicas start with the weights of the first one.
  Pipeline(Communicator& comm, torch::nn::Sequential model, PipelineOptions options);
  Pipeline(Communicator& comm, std::vector<torch::nn::AnyModule> layers, PipelineOptions options);
  /// Turns gradients that it has given out into copies.
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;

  /// Updates parameters() from their gradients, in place: an optimizer's step.
  using Update = std::function<void()>;

  /// Computes the `.grad` of parameters() and returns the loss, the same on all ranks. `input` and `target` are this
  /// replica's part of the batch, cut along dim 0; the rank of the first stage reads `input`, that of the last stage
  /// `target`, and others may pass undefined tensors. `update`, if set, is called when gradients are ready. Synchronous
  /// schedules call it once, at the end. Asynchronous ones require it and call it after each update's micro-batches;
  /// `.grad` then holds only that update's gradients, only until `update` returns.
  double step(const torch::Tensor& input, const torch::Tensor& target, const Loss& loss, const Update& update = {});

  /// Returns a micro-batch of this replica by its number, from 0.
  using Samples = std::function<torch::Tensor(int64_t micro_batch)>;
  /// Trains on a stream of micro-batches with an asynchronous schedule: the pipeline fills once and drains at the end,
  /// instead of in every step ([Note: Streams]). The bits are those of one step() with as many micro-batches. The rank
  /// of the first stage calls `inputs` and that of the last stage `targets`, in the order of numbers. Returns the mean
  /// loss (the sum without `average`), the same on all ranks.
  double stream(int64_t num_micro_batches, const Samples& inputs, const Samples& targets, const Loss& loss,
                const Update& update);

  /// The parameters that this rank trains. Names are those of the whole model ("3.weight"): the first one, if a
  /// parameter has several.
  std::vector<torch::Tensor> parameters() const;
  const std::vector<std::pair<std::string, torch::Tensor>>& named_parameters() const { return parameters_; }

  const Partition& partition() const { return partition_; }
  const Program& program() const { return steps_->program(); }
  /// Findings of the program checker, such as memory peaks.
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
  /// Number of this rank's stages before `stage`.
  size_t held_before(int stage) const;

  Communicator& comm_;
  const PipelineOptions options_;
  std::vector<torch::nn::AnyModule> layers_;
  torch::Device device_{torch::kCPU};
  StepShape shape_;
  Partition partition_;
  int pipeline_rank_ = 0, replica_ = 0;
  uint64_t num_steps_ = 0;
  // State of the current step or stream.
  Samples inputs_, targets_;
  const Loss* loss_ = nullptr;
  std::function<void(int micro_batch, const torch::Tensor& loss)> on_loss_;

  std::vector<std::pair<std::string, torch::Tensor>> parameters_;
  std::unique_ptr<StageSet> held_;
  std::unique_ptr<TiedWeights> tied_weights_;
  std::unique_ptr<StepEngine> steps_;
  // Last, so that they are destroyed first: messages may be in flight after a failed step.
  std::unique_ptr<Communicator> replicas_;
  std::unique_ptr<Communicator> along_;
};

}  // namespace trireme
