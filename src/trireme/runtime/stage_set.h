// The stages of a model that this rank holds: gradients in slots, weights in flat memory, what replicas shard of both,
// and this rank's ends of tied weights.
//
//   parameters of each stage ──▶ GradientStore    one per stage
//                            ──▶ ParameterStore   where weights are flat: sharded, or in mixed precision
//                            ──▶ LayerWeights     where weights are sharded: gathers them before a layer, frees them
//                            after
//
// Everything that trains has one. Trainer, Pipeline, DataParallel and FullyShard differ in which parameters they put
// into which stage, and in who runs the backward pass: a program (StepEngine) or the caller.
//
// Owner: those. It must outlive every backward pass of its parameters. Threads: the one that computes. Blocking:
// before(), while sharded weights are on their way. Fails with UsageError in the constructor, CommError in before().
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

/// What a stage trains.
struct StageSources {
  int number = -1;                           ///< in the pipeline; -1: the stage is the whole model
  LayerRange layers = {0, 1};                ///< `unit` of each source is one of them
  std::vector<GradientSource> sources = {};  ///< in the order of the forward pass
};

/// Adds the parameters of a module that need gradients, each once even if it has several names. Returns the name of the
/// first that was among `sources` before, if any.
std::optional<std::string> add_sources(std::vector<GradientSource>& sources, const torch::nn::Module& module,
                                       const std::string& prefix = "", int unit = 0);
/// Throws UsageError with this cure where two sources differ in dtype.
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
  int owner_rank = -1, use_rank = -1;               ///< along the pipeline
  std::optional<SourcePlace> owner = {}, use = {};  ///< its two ends, where this rank has them
  bool is_local() const { return owner_rank == use_rank; }
};

struct FlatWeightsOptions {
  torch::ScalarType compute_type = torch::kFloat32;
  ParameterSharding sharding = {};
  ParameterStore::Value value;  ///< initial values
};

struct StageSetOptions {
  Communicator* replicas = nullptr;  ///< null where there is one
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
    std::unique_ptr<LayerWeights> weights;  ///< null where nothing is sharded
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
  /// Sum of a source's gradients; where it is sharded, the shard of its whole group.
  torch::Tensor gradient_of(const SourcePlace& place) const;
  /// The weight as this rank has it: its part of a mesh tensor, its shard where replicas shard it.
  torch::Tensor weight_of(const SourcePlace& place) const;
  /// After weight_of() of a tied weight's use has been written.
  void mark_written(const SourcePlace& place) const;

  /// Numbered as in the program.
  const std::vector<TiedParameter>& tied() const { return tied_; }
  /// Both ends of every tied weight, for stages of one shape.
  std::vector<TiedWeights::Tie> ties() const;

  /// Gathers sharded weights for a layer of the forward pass, and frees them behind it. Nothing where none are sharded.
  void before(size_t layer) const;
  void after(size_t layer, const Tensors& outputs) const;

  /// Bytes of gradient sums; and of what it takes to make them: partial sums, those of second uses, groups on their
  /// way.
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
