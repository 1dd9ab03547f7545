// Gathers a stage's sharded weights before each layer needs them, and frees them after: [Note: Sharded parameters].
//
//   forward    layer 0 ─▶ layer 1 ─▶ layer 2        each layer waits for its groups, begins to gather the next one's,
//   backward   layer 0 ◀─ layer 1 ◀─ layer 2        and frees its own behind itself
//
// The backward pass tells by the gradients of what a layer gave: with the first of them it needs the layer's weights,
// and with the last it is done with all layers behind, for whatever they used came through here.
//
// In which order groups come, the program says (AllGather); outside of a program, the layers do. Owner: the runtime.
// Threads: the one that computes. Blocking: while groups are on their way. Fails with CommError.
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
    size_t stage = 0;  ///< of the store
    int number = 0;
    auto operator<=>(const Group&) const = default;
  };
  /// `groups` are those that each layer of the stage uses; the first layer has the number `first`. `keep`: they stay
  /// from the forward to the backward pass.
  LayerWeights(ParameterStore& store, size_t stage, size_t first, std::vector<std::vector<Group>> groups, bool keep);

  /// The program's AllGather: the next pass needs this group of the stage. (Not so where a weight that is tied
  /// lies in another group.)
  void expect(int group);
  /// Around each layer of a forward pass.
  void before(size_t layer);
  void after(size_t layer, const Tensors& outputs);
  /// Before a backward pass; it goes from layer to layer by itself.
  void begin_backward() { enter(groups_.size() - 1); }
  /// Frees what is left. `kept` where the backward pass of the same micro-batch comes next.
  void end_pass(bool kept);

 private:
  void need(size_t layer);
  void look_ahead(size_t next);
  /// The backward pass needs this layer.
  void enter(size_t layer);
  /// It has all layers behind this one behind it.
  void free_behind(size_t layer);

  ParameterStore& store_;
  const size_t stage_, first_;
  const std::vector<std::vector<Group>> groups_;  ///< of each layer, from `first`
  const bool keep_;
  std::deque<Group> expected_;
};

}  // namespace trireme
