// What of a model this worker holds: all of it, or the layers of its stages of a pipeline, and of these with tensor
// parallelism a part; with the gradients, the program that fills them, and its ends of tied weights ([Note: Tied
// weights]).
//
// Owner: the trainer. Threads: one. The constructor is collective, and so is what says it.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "trireme/config/check.h"
#include "trireme/models/model.h"
#include "trireme/program/schedules/partition.h"
#include "trireme/program/step.h"
#include "trireme/runtime/executor.h"
#include "trireme/runtime/gradient_store.h"
#include "trireme/runtime/lane_messages.h"
#include "trireme/runtime/parameter_store.h"
#include "trireme/runtime/tied_weights.h"
#include "trireme/train/rank_groups.h"
#include "trireme/train/residual_places.h"

namespace trireme {

/// Whether this rank along a pipeline computes the first stage, which has the inputs, or the last, which has the
/// targets.
bool needs_samples(const Layout& layout, int pipeline_rank);

class ModelPart {
 public:
  /// Takes what it needs of the model, whose other layers it drops.
  ModelPart(std::shared_ptr<Model> model, const Config& config, const Layout& layout, const RankGroups& groups,
            const torch::Device& device, torch::ScalarType compute_type);

  /// Layers that are computed one after another.
  struct StagePart {
    int number = -1;  ///< of the pipeline; -1: the whole model
    LayerRange layers;
    std::unique_ptr<GradientStore> gradients;
    std::unique_ptr<LayerWeights> weights;  ///< null where nothing is sharded
    std::vector<Statistic> statistics;
  };
  /// A parameter of the whole model.
  struct Weight {
    std::string name;
    std::vector<int64_t> sizes;
    int owner = 0;   ///< along the pipeline
    int entry = -1;  ///< in parameters(); -1: on another rank
  };

  /// Where gradients of a parameter are.
  struct Source {
    size_t stage = 0, number = 0;  ///< of stages(), of its store
  };
  /// A second use of a weight: [Note: Tied weights].
  struct Tied {
    std::string name;                   ///< of the parameter
    TiedWeight stages = {};             ///< its two ends
    int use = -1, owner = -1;           ///< pipeline ranks
    torch::Tensor leaf = {};            ///< the copy that this rank computes with; undefined on others
    Source of_owner = {}, of_use = {};  ///< gradients of the two ends, where they are on this rank
  };

  Model& model() { return *model_; }
  const Model& model() const { return *model_; }
  ParameterStore& parameters() { return *parameters_; }
  const ParameterStore& parameters() const { return *parameters_; }
  const std::vector<StagePart>& stages() const { return stages_; }
  /// By its number.
  const StagePart& stage(int number) const;
  const std::vector<Weight>& weights() const { return weights_; }
  /// Of the whole model, numbered as in the program.
  const std::vector<Tied>& tied() const { return tied_; }
  const TiedWeights& tied_weights() const { return *tied_weights_; }
  /// Parameters that have gradients here, with the sizes of the whole.
  std::vector<WholeTensor> own_tensors() const;
  int64_t num_parameters() const;
  const Partition& partition() const { return partition_; }
  bool is_first(const StagePart& stage) const { return stage.layers.first == 0; }
  bool is_last(const StagePart& stage) const { return stage.layers.last == partition_.back().last; }
  bool has_first() const;
  bool has_last() const;
  int rank_of_last() const { return rank_of_layer_.back(); }  ///< along the pipeline

  /// Of the step, without the groups of its stages.
  const StepShape& shape() const { return shape_; }
  /// For a program of forward passes; null without a pipeline. `seq` as for forward().
  std::unique_ptr<StageMessages> pass_messages(const Program& program, int64_t seq) const;

  /// Where the sum of the gradients of a shard of parameters() lies, flat.
  torch::Tensor gradient(size_t shard) const;
  /// Which of stages() a shard belongs to.
  const StagePart& stage_of(size_t shard) const { return stages_[parameters_->shards()[shard].stage]; }
  torch::ScalarType travel_type() const { return travel_type_; }
  /// The program of ZeRO's stage needs weights that are gathered: all of them, where they are kept. Collective.
  void gather_weights() const { parameters_->gather_all(); }
  /// Outside of a step, after weights have changed: owners' tied weights to their copies. Collective.
  void refresh_tied_weights() const { tied_weights_->refresh(groups_.pipeline_rank); }

  /// What a stage makes of the outputs of the one before, or of the inputs: plain tensors, of mesh tensors this rank's
  /// part. Of the last stage the loss where there are targets, else what the model gives; both may be mesh tensors.
  /// `seq` is the length of the samples, for language models.
  Tensors forward(const StagePart& stage, const Tensors& x, int64_t seq, const Tensors& targets = {}) const;
  /// Null where stages are alike.
  LaneMessages* lane_messages() const { return lane_messages_.get(); }

  /// Of the sums, and of what is there to make them: partial sums, those of second uses, groups on their way.
  size_t gradient_bytes() const;
  size_t gradient_buffer_bytes() const;

 private:
  void place_parameters();
  void cut(const Config& config);
  void list_weights();
  void distribute_parameters();
  std::vector<std::vector<GradientSource>> list_sources();
  void make_stores(const Config& config, torch::ScalarType compute_type);
  void make_layer_weights();
  torch::Tensor gradient_of(const Source& source) const;
  torch::Tensor weight_of(const Tied& tied, bool at_use) const;
  void make_tied_weights();
  size_t second_use_bytes() const;
  torch::Tensor initial_part(const std::string& name, const torch::Tensor& parameter) const;
  int group_of(const Source& source) const;
  // Where stages differ in shape: model_part_lanes.cpp.
  void make_lanes();
  std::vector<TiedWeights::Tie> routed_ties() const;
  torch::Tensor whole_of(const Source& source, const torch::Tensor& own) const;
  torch::Tensor own_of(const Source& source, const torch::Tensor& whole) const;

  const RankGroups& groups_;
  const torch::Device device_;
  const uint64_t seed_;
  const int zero_;              ///< 0 where there is one replica
  const bool keeps_weights_;    ///< from the forward to the backward pass
  const int64_t accumulation_;  ///< micro-batches of a step that this rank sums
  torch::ScalarType travel_type_;
  std::shared_ptr<Model> model_;
  StepShape shape_;
  Partition partition_;
  std::vector<int> rank_of_layer_;
  std::vector<Weight> weights_;
  std::unique_ptr<ParameterStore> parameters_;
  std::vector<StagePart> stages_;
  std::vector<Tied> tied_;
  std::unique_ptr<LaneMessages> lane_messages_;
  std::unique_ptr<TiedWeights> tied_weights_;
};

}  // namespace trireme
