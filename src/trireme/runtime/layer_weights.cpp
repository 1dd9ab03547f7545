#include "trireme/runtime/layer_weights.h"

#include <algorithm>
#include <memory>
#include <set>

namespace trireme {

LayerWeights::LayerWeights(ParameterStore& store, size_t stage, size_t first, std::vector<std::vector<Group>> groups,
                           bool keep)
    : store_(store), stage_(stage), first_(first), groups_(std::move(groups)), keep_(keep) {}

void LayerWeights::expect(int group) {
  const Group expected{stage_, group};
  const auto is_needed = [&](const std::vector<Group>& layer) {
    return std::find(layer.begin(), layer.end(), expected) != layer.end();
  };
  if (std::any_of(groups_.begin(), groups_.end(), is_needed)) expected_.push_back(expected);
}

void LayerWeights::before(size_t layer) {
  need(layer - first_);
  look_ahead(layer - first_ + 1);
}

void LayerWeights::after(size_t layer, const Tensors& outputs) {
  const size_t own = layer - first_;
  const auto missing = std::make_shared<int64_t>(0);  // gradients that have not arrived yet in this backward pass
  for (const torch::Tensor& output : outputs) *missing += output.requires_grad() ? 1 : 0;
  const bool differentiates = *missing > 0;
  const bool is_last = own + 1 == groups_.size();
  for (const torch::Tensor& output : outputs) {
    if (!output.requires_grad() || is_last) continue;
    output.register_hook([this, own, missing, all = *missing](const torch::Tensor&) {
      if (*missing == 1) free_behind(own);
      if (*missing == all) enter(own);
      if (--*missing == 0) *missing = all;  // a pass in two halves runs these hooks twice
    });
  }
  // The last layer is kept: it is the first of the backward pass.
  if (store_.frees() && !(differentiates && (keep_ || is_last))) {
    const std::vector<Group> next = is_last ? std::vector<Group>() : groups_[own + 1];
    for (const Group& group : groups_[own]) {
      if (std::find(next.begin(), next.end(), group) == next.end()) store_.free(group.stage, group.number);
    }
  }
}

void LayerWeights::need(size_t layer) {
  for (const Group& group : groups_[layer]) {
    const auto found = std::find(expected_.begin(), expected_.end(), group);
    if (found != expected_.end()) expected_.erase(found);
    store_.finish_gather(group.stage, group.number);
  }
}

/// Gathers the next groups while this layer computes.
void LayerWeights::look_ahead(size_t next) {
  if (!expected_.empty()) return store_.start_gather(expected_.front().stage, expected_.front().number);
  if (next >= groups_.size()) return;
  for (const Group& group : groups_[next]) store_.start_gather(group.stage, group.number);
}

void LayerWeights::enter(size_t layer) {
  need(layer);
  if (layer > 0) look_ahead(layer - 1);
}

void LayerWeights::free_behind(size_t layer) {
  if (!store_.frees()) return;
  std::set<Group> needed(groups_[layer].begin(), groups_[layer].end());
  for (size_t before = 0; keep_ && before < layer; ++before)
    needed.insert(groups_[before].begin(), groups_[before].end());
  for (size_t behind = layer + 1; behind < groups_.size(); ++behind) {
    for (const Group& group : groups_[behind]) {
      if (!needed.contains(group)) store_.free(group.stage, group.number);
    }
  }
}

void LayerWeights::end_pass(bool kept) {
  expected_.clear();
  if (!store_.frees() || kept) return;
  for (const auto& of_layer : groups_) {
    for (const Group& group : of_layer) store_.free(group.stage, group.number);
  }
}

}  // namespace trireme
