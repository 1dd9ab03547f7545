// Gathers a stage's sharded weights before each layer needs them, and frees them afterwards: [Note: Sharded
// parameters].
//
//   forward    layer 0 ─▶ layer 1 ─▶ layer 2        each layer waits for its groups, starts to gather the next layer's,
//   backward   layer 0 ◀─ layer 1 ◀─ layer 2        and frees its own when it is done
//
// In the backward pass, hooks on a layer's outputs do this. The first gradient to arrive says that the layer's weights
// are needed; the last one says that all later layers are done, since their inputs all come through these outputs.
//
// The program sets the order of gathers (AllGather); outside of a program, the order of layers does.
//
// Owner: a StageSet. Threads: the one that computes. Blocking: before() and backward hooks wait for groups in flight.
// Fails with CommError.
#pragma once

#include <torch/torch.h>

#include <compare>
#include <deque>
#include <vector>

#include "trireme/runtime/parameter_store.h"
#include "trireme/tensor/tensors.h"

namespace trireme {

class LayerWeights {
 public:
  struct Group {
    size_t stage = 0;  ///< index in the store
    int number = 0;
    auto operator<=>(const Group&) const = default;
  };
  /// `groups`: what each layer of the stage uses, starting with layer `first`. `keep`: weights stay from the forward to
  /// the backward pass.
  LayerWeights(ParameterStore& store, size_t stage, size_t first, std::vector<std::vector<Group>> groups, bool keep);

  /// Carries out the program's AllGather: the next pass needs this group of the stage. Ignored if no layer uses the
  /// group, because its weight is tied to one in another group.
  void expect(int group);
  /// Call before and after each layer of a forward pass.
  void before(size_t layer);
  void after(size_t layer, const Tensors& outputs);
  /// Call before a backward pass; from there on, the hooks go from layer to layer.
  void begin_backward() { enter(groups_.size() - 1); }
  /// Frees what is left, unless `kept`: the backward pass of the same micro-batch comes next.
  void end_pass(bool kept);

 private:
  void need(size_t layer);
  void look_ahead(size_t next);
  /// Called when the backward pass reaches this layer.
  void enter(size_t layer);
  /// Called when the backward pass is done with all layers after this one.
  void free_behind(size_t layer);

  ParameterStore& store_;
  const size_t stage_, first_;
  const std::vector<std::vector<Group>> groups_;  ///< groups of each layer, from `first`
  const bool keep_;
  std::deque<Group> expected_;
};

}  // namespace trireme
