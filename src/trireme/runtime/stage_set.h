// The stages of a model that this rank holds: their gradients in slots, their weights in flat memory, the shards of
// both, and this rank's ends of tied weights.
//
//   parameters of each stage ──▶ GradientStore    one per stage
//                            ──▶ ParameterStore   if weights are flat: sharded, or in mixed precision
//                            ──▶ LayerWeights     if weights are sharded: gathers them before a layer, frees them after
//
// Engine (in its ModelPart), Pipeline, DataParallel and FullyShard each have one. They differ in which parameters they
// assign to which stage, and in who runs the backward pass: a program (StepEngine) or the caller.
//
// Owner: the class that trains. It must outlive every backward pass of its parameters. Threads: the one that computes.
// Blocking: before() and the backward pass, until sharded weights are gathered. Fails with UsageError in the
// constructor, and with CommError while gathering.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/program/instruction.h"
#include "trireme/program/schedules/partition.h"
#include "trireme/runtime/gradient_store.h"
#include "trireme/runtime/layer_weights.h"
#include "trireme/runtime/parameter_store.h"
#include "trireme/runtime/tied_weights.h"

namespace trireme {

/// The parameters that a stage trains.
struct StageSources {
  int number = -1;                           ///< number in the pipeline; -1: the stage is the whole model
  LayerRange layers = {0, 1};                ///< layers of the stage; the `unit` of each source is one of them
  std::vector<GradientSource> sources = {};  ///< in the order of the forward pass
};

/// Appends the parameters of a module that require gradients, each once even if it has several names. Returns the name
/// of the first one that `sources` already had, if any.
std::optional<std::string> add_sources(std::vector<GradientSource>& sources, const torch::nn::Module& module,
                                       const std::string& prefix = "", int unit = 0);
/// Throws UsageError with this cure if two sources differ in dtype.
void require_one_dtype(const std::vector<GradientSource>& sources, const std::string& cure);

/// A source on this rank.
struct SourcePlace {
  size_t stage = 0;   ///< index into StageSet::stages()
  size_t source = 0;  ///< index into its sources
};

/// A weight with two uses: [Note: Tied weights].
struct TiedParameter {
  std::string name;
  TiedWeight stages = {};                           ///< numbers of its two stages
  int owner_rank = -1, use_rank = -1;               ///< ranks along the pipeline
  std::optional<SourcePlace> owner = {}, use = {};  ///< its two ends; unset on ranks that do not hold them
  bool is_local() const { return owner_rank == use_rank; }
};

struct FlatWeightsOptions {
  torch::ScalarType compute_type = torch::kFloat32;
  ParameterSharding sharding = {};
  ParameterStore::Value value;  ///< initial values
};

struct StageSetOptions {
  Communicator* replicas = nullptr;  ///< null if there is only one replica
  /// Without flat weights, gradients have the dtype of their stage's parameters instead of `gradients.type`.
  GradientStoreOptions gradients = {};
  /// Unset: parameters keep their memory, and the caller's optimizer updates them there.
  std::optional<FlatWeightsOptions> weights = {};
};

class StageSet {
 public:
  struct Stage {
    int number = -1;
    LayerRange layers;
    std::unique_ptr<GradientStore> gradients;
    std::unique_ptr<LayerWeights> weights;  ///< null if nothing is sharded
    bool is_first() const { return layers.first == 0; }
  };

  StageSet(std::vector<StageSources> stages, std::vector<TiedParameter> tied, StageSetOptions options);
  StageSet(const StageSet&) = delete;

  const std::vector<Stage>& stages() const { return stages_; }
  /// The stage with this number.
  const Stage& stage(int number) const;
  /// The stage that computes this layer.
  const Stage& stage_of_layer(size_t layer) const;
  const GradientStore& store(const SourcePlace& place) const { return *stages_[place.stage].gradients; }
  const GradientSource& source(const SourcePlace& place) const { return store(place).sources()[place.source]; }

  bool has_flat_weights() const { return parameters_ != nullptr; }
  ParameterStore& parameters() const { return *parameters_; }
  /// Sum of the gradients of a shard of parameters(), flat.
  torch::Tensor gradient(size_t shard) const;
  bool is_sharded(const SourcePlace& place) const { return store(place).is_sharded(group_of(place)); }
  int group_of(const SourcePlace& place) const { return store(place).group_of(place.source); }
  /// Sum of a source's gradients; if it is sharded, the shard of its whole group.
  torch::Tensor gradient_of(const SourcePlace& place) const;
  /// This rank's part of the weight: its shard if replicas shard it, its local part if it is a mesh tensor, else all of
  /// it.
  torch::Tensor weight_of(const SourcePlace& place) const;
  /// Call after writing to weight_of() of a tied weight's second use: a sharded one is gathered again.
  void mark_written(const SourcePlace& place) const;

  /// Indexed by the tie numbers of the program.
  const std::vector<TiedParameter>& tied() const { return tied_; }
  /// This rank's ends of every tied weight, for stages that all have the same shape.
  std::vector<TiedWeights::Tie> ties() const;

  /// Gathers sharded weights before a layer of the forward pass, and frees them after it. Do nothing if none are
  /// sharded.
  void before(size_t layer) const;
  void after(size_t layer, const Tensors& outputs) const;

  /// Bytes of gradient sums; and of what making them takes: partial sums, sums of second uses, groups in flight.
  size_t gradient_bytes() const;
  size_t gradient_buffer_bytes() const;

 private:
  bool shards_weights() const { return options_.weights && options_.weights->sharding.shard_group != nullptr; }
  const TiedParameter* tied_use(const SourcePlace& place) const;
  void make_parameters(const std::vector<StageSources>& stages);
  void make_layer_weights();
  size_t second_use_bytes() const;

  const StageSetOptions options_;
  const std::vector<TiedParameter> tied_;
  std::unique_ptr<ParameterStore> parameters_;
  std::vector<Stage> stages_;
};

}  // namespace trireme
