// What of a model this worker holds: all of it, or the layers of its stages of a pipeline, and of these with tensor
// parallelism a part; with the gradients, the program that fills them, and the weights that two stages share.
//
// [Note: Shared weights]
// A weight with two uses, such as the embedding of a language model that is also its output layer, belongs to the stage
// of its first use. Each use has gradients of its own, summed apart over micro-batches and replicas; then they meet in
// the owner's. Where the second use is on another rank, that one has a copy: it sends its gradient, the owner updates,
// and sends the weights back. So the sum is the same wherever the model is cut, and nobody else needs the optimizer's
// state. Where replicas share parameters ([Note: Shared parameters]), each sends and gets the part that it has.
//
// Owner: the trainer. Threads: one. The constructor is collective, and so is what says it.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "trireme/config/check.h"
#include "trireme/models/model.h"
#include "trireme/program/pipeline.h"
#include "trireme/program/schedules/partition.h"
#include "trireme/runtime/executor.h"
#include "trireme/runtime/gradient_store.h"
#include "trireme/runtime/lane_messages.h"
#include "trireme/runtime/parameter_store.h"
#include "trireme/train/rank_groups.h"
#include "trireme/train/residual_places.h"

namespace trireme {

struct CheckReport;

/// Whether this rank along a pipeline computes the first stage, which has the inputs, or the last, which has the
/// targets.
bool needs_samples(const Config& config, const BatchPlan& plan, int pipeline_rank);

class ModelPart {
 public:
  ModelPart(const Config& config, const BatchPlan& plan, const RankGroups& groups, const torch::Device& device,
            torch::ScalarType compute_type);

  /// Layers that are computed one after another.
  struct StagePart {
    int number = -1;  ///< of the pipeline; -1: the whole model
    LayerRange layers;
    std::unique_ptr<GradientStore> gradients;
    std::unique_ptr<LayerWeights> weights;  ///< null where replicas share nothing
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
  /// A second use of a weight: [Note: Shared weights].
  struct Shared {
    std::string name;                   ///< of the parameter
    int use = -1, owner = -1;           ///< pipeline ranks
    torch::Tensor leaf = {};            ///< where it is used here
    Source of_owner = {}, of_use = {};  ///< where it is owned and used here
    // Where stages differ in shape: how its gradient goes to the owner, and how the weight comes back.
    std::shared_ptr<ParcelRoute> gradient_route = nullptr, weight_route = nullptr;
  };

  Model& model() { return *model_; }
  const Model& model() const { return *model_; }
  ParameterStore& parameters() { return *parameters_; }
  const ParameterStore& parameters() const { return *parameters_; }
  const std::vector<StagePart>& stages() const { return stages_; }
  const std::vector<Weight>& weights() const { return weights_; }
  /// Of the whole model.
  const std::vector<Shared>& shared() const { return shared_; }
  /// Parameters that have gradients here, with the sizes of the whole.
  std::vector<WholeTensor> own_tensors() const;
  int64_t num_parameters() const;
  const Partition& partition() const { return partition_; }
  bool is_first(const StagePart& stage) const { return stage.layers.first == 0; }
  bool is_last(const StagePart& stage) const { return stage.layers.last == partition_.back().last; }
  bool has_first() const;
  bool has_last() const;
  int rank_of_last() const { return rank_of_layer_.back(); }  ///< along the pipeline

  /// The program of this rank, checked together with those of all ranks, however many; every stage has values beside
  /// its gradients. `report`: what the check says of them. Collective.
  Program program(const BatchPlan& plan, CheckReport* report = nullptr) const;

  /// Where the sum of the gradients of a share of parameters() lies, flat.
  torch::Tensor gradient(size_t share) const;
  /// Which of stages() a share belongs to.
  const StagePart& stage_of(size_t share) const { return stages_[parameters_->shares()[share].stage]; }
  torch::ScalarType travel_type() const { return travel_type_; }
  /// The program of ZeRO's stage needs weights that are gathered: all of them, where they are kept. Collective.
  void gather_weights() const { parameters_->gather_all(); }
  /// [Note: Shared weights]: after the sums over replicas; and after the weights have changed. Both collective.
  void add_shared_gradients() const;
  void share_weights() const;

  /// What a stage makes of the output of the one before, or of the input: plain tensors, of mesh tensors this rank's
  /// part. Of the last stage the loss where there is a target, else logits; both may be mesh tensors. `seq` is the
  /// length of the samples, for language models.
  torch::Tensor forward(const StagePart& stage, const torch::Tensor& x, int64_t seq,
                        const torch::Tensor& target = {}) const;
  /// All stages in evaluation, without gradients: the logits where the last stage is, elsewhere an undefined tensor.
  /// Collective along the pipeline, or among those who have the lane.
  torch::Tensor predict(const torch::Tensor& input, int64_t seq, int lane) const;
  /// Waits until what predict() has sent between stages of different shapes is gone: after each lane had its turn.
  void finish_predictions() const {
    if (lane_messages_) lane_messages_->finish();
  }
  /// Null where stages are alike.
  LaneMessages* lane_messages() const { return lane_messages_.get(); }

  /// Of the sums, and of what is there to make them: partial sums, those of second uses, groups on their way.
  size_t gradient_bytes() const;
  size_t gradient_buffer_bytes() const;

 private:
  void place_parameters() const;
  void cut(const Config& config, const BatchPlan& plan);
  void list_weights();
  void distribute_parameters(const Config& config);
  std::vector<std::vector<GradientSource>> list_sources();
  void make_stores(const Config& config, const BatchPlan& plan, torch::ScalarType compute_type);
  void make_layer_weights();
  torch::Tensor gradient_of(const Source& source) const;
  size_t second_use_bytes() const;
  torch::Tensor initial_part(const std::string& name, const torch::Tensor& parameter) const;
  void send(const torch::Tensor& tensor, int to) const;
  void receive(const torch::Tensor& tensor, int from) const;
  int group_of(const Source& source) const;
  // Where stages differ in shape: model_part_lanes.cpp.
  void make_lanes(const Config& config);
  torch::Tensor whole_of(const Source& source, const torch::Tensor& own) const;
  torch::Tensor own_of(const Source& source, const torch::Tensor& whole) const;
  void add_shared_gradients_over_lanes() const;
  void share_weights_over_lanes() const;

  const RankGroups& groups_;
  const torch::Device device_;
  const uint64_t seed_;
  const int zero_;              ///< 0 where there is one replica
  const bool keeps_weights_;    ///< from the forward to the backward pass
  const int64_t accumulation_;  ///< micro-batches of a step that this rank sums
  const ZeroShape zero_asked_;  ///< by the config, for stages that have replicas; without its groups
  torch::ScalarType travel_type_;
  std::shared_ptr<Model> model_;
  PipelineShape shape_;  ///< without its groups; unused where pp is 1
  Partition partition_;
  std::vector<int> rank_of_layer_;
  std::vector<Weight> weights_;
  std::unique_ptr<ParameterStore> parameters_;
  std::vector<StagePart> stages_;
  std::vector<Shared> shared_;
  std::unique_ptr<LaneMessages> lane_messages_;
};

}  // namespace trireme
