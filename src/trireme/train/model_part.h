// The part of a model that this worker trains: all layers, or those of its pipeline stages, and with tensor parallelism
// a slice of each. Assigns its parameters to the stages of a StageSet.
//
// Owner: Engine. Threads: one. The constructor is collective, and so are the functions that say so. Fails with
// UsageError or CommError.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "trireme/config/check.h"
#include "trireme/models/model.h"
#include "trireme/program/schedules/partition.h"
#include "trireme/program/step.h"
#include "trireme/runtime/lane_messages.h"
#include "trireme/runtime/stage_set.h"
#include "trireme/train/rank_groups.h"
#include "trireme/train/residual_places.h"

namespace trireme {

/// Whether a pipeline rank computes the first stage, which needs the inputs, or the last, which needs the targets.
bool needs_samples(const Layout& layout, int pipeline_rank);

class ModelPart {
 public:
  /// Keeps the model's layers that this rank computes, and drops the others.
  ModelPart(std::shared_ptr<Model> model, const Config& config, const Layout& layout, const RankGroups& groups,
            const torch::Device& device, torch::ScalarType compute_type);

  /// A parameter of the whole model.
  struct Weight {
    std::string name;
    std::vector<int64_t> sizes;
    int owner = 0;   ///< rank along the pipeline
    int entry = -1;  ///< index into parameters(); -1: on another rank
  };

  Model& model() { return *model_; }
  const Model& model() const { return *model_; }
  const StageSet& held() const { return *held_; }
  ParameterStore& parameters() { return held_->parameters(); }
  const ParameterStore& parameters() const { return held_->parameters(); }
  const std::vector<StageSet::Stage>& stages() const { return held_->stages(); }
  /// Statistics that the layers of a stage, one of stages(), observe.
  const std::vector<Statistic>& statistics(const StageSet::Stage& stage) const {
    return statistics_[static_cast<size_t>(&stage - stages().data())];
  }
  const std::vector<Weight>& weights() const { return weights_; }
  const TiedWeights& tied_weights() const { return *tied_weights_; }
  /// Parameters that have gradients on this rank, with their global sizes.
  std::vector<WholeTensor> own_tensors() const;
  int64_t num_parameters() const;
  const Partition& partition() const { return partition_; }
  bool is_first(const StageSet::Stage& stage) const { return stage.layers.first == 0; }
  bool is_last(const StageSet::Stage& stage) const { return stage.layers.last == partition_.back().last; }
  bool has_first() const;
  bool has_last() const;
  int rank_of_last() const { return rank_of_layer_.back(); }  ///< pipeline rank of the last layer

  /// Shape of the step, without the numbers of groups of its stages.
  const StepShape& shape() const { return shape_; }
  /// Messages for a program of forward passes; null without a pipeline. `seq` as for forward().
  std::unique_ptr<StageMessages> pass_messages(const Program& program, int64_t seq) const;

  /// Sum of the gradients of a shard of parameters(), flat.
  torch::Tensor gradient(size_t shard) const { return held_->gradient(shard); }
  torch::ScalarType travel_type() const { return travel_type_; }
  /// Gathers stale sharded weights outside of a step, for evaluation, say. No-op without sharding, and with ZeRO-3,
  /// which gathers them layer by layer. Collective.
  void gather_weights() const { held_->parameters().gather_all(); }
  /// Sends the owners' tied weights to their copies, outside of a step, after weights have changed. Collective.
  void refresh_tied_weights() const { tied_weights_->refresh(groups_.pipeline_rank); }

  /// Runs a stage on the previous stage's outputs, or on the inputs. Takes and returns plain tensors: this rank's parts
  /// of mesh tensors. But the last stage returns the loss if there are targets, else the model's outputs, and either
  /// may be a mesh tensor. `seq` is the length of the samples, for language models.
  Tensors forward(const StageSet::Stage& stage, const Tensors& x, int64_t seq, const Tensors& targets = {}) const;
  /// Null if all stages have the same shape.
  LaneMessages* lane_messages() const { return lane_messages_.get(); }

 private:
  void place_parameters();
  void cut(const Config& config);
  void list_weights();
  void distribute_parameters();
  std::vector<StageSources> list_sources();
  GradientStoreOptions gradient_options(const Config& config, const std::vector<StageSources>& stages) const;
  void hold(const Config& config, torch::ScalarType compute_type);
  void make_tied_weights();
  torch::Tensor initial_part(const std::string& name, const torch::Tensor& parameter) const;
  // For stages of different shapes: model_part_lanes.cpp.
  void make_lanes();
  std::vector<TiedWeights::Tie> routed_ties() const;
  torch::Tensor whole_of(const SourcePlace& place, const torch::Tensor& own) const;
  torch::Tensor own_of(const SourcePlace& place, const torch::Tensor& whole) const;

  const RankGroups& groups_;
  const torch::Device device_;
  const uint64_t seed_;
  const int zero_;              ///< ZeRO stage, 0 to 3; 0 without a shard group
  const int64_t accumulation_;  ///< number of micro-batches of a step that this rank sums
  torch::ScalarType travel_type_;
  std::shared_ptr<Model> model_;
  StepShape shape_;
  Partition partition_;
  std::vector<int> rank_of_layer_;
  std::vector<Weight> weights_;
  std::vector<TiedParameter> tied_;  ///< empty once held_ has them
  std::vector<std::vector<Statistic>> statistics_;
  std::unique_ptr<StageSet> held_;
  std::unique_ptr<LaneMessages> lane_messages_;
  std::unique_ptr<TiedWeights> tied_weights_;
};

}  // namespace trireme
