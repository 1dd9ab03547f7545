#include "numerics/mesh_rules/proof_layouts.h"

#include <algorithm>
#include <random>

namespace trireme {
namespace {

/// Cuts of a tensor along one axis that are worth trying: of each dimension, in stretches and by units, and sums.
std::vector<Placement> placements_for(const at::Tensor& tensor) {
  std::vector<Placement> all = {Placement::replicate()};
  for (int dim = 0; dim < tensor.dim(); ++dim) {
    all.push_back(Placement::shard(dim));
    for (const int64_t by : {2, 3}) {
      if (tensor.size(dim) < 2 * by || tensor.size(dim) % by != 0) continue;
      all.push_back(Placement::shard(dim, by));
      all.push_back(Placement::shard(dim, 1, by));
    }
  }
  if (tensor.is_floating_point()) all.push_back(Placement::partial());
  return all;
}

/// A dimension that two axes cut is cut in the simplest way.
void simplify(Layout& layout) {
  for (size_t a = 0; a < layout.size(); ++a) {
    for (size_t b = a + 1; b < layout.size(); ++b) {
      if (!layout[a].is_shard() || !layout[b].is_shard(layout[a].dim)) continue;
      layout[a] = Placement::shard(layout[a].dim);
      layout[b] = Placement::shard(layout[b].dim);
    }
  }
}

/// The layout of another tensor, where a dimension is as long: what programs do. The same dimension, or the last such.
Layout alike(Layout layout, const at::Tensor& first, const at::Tensor& tensor, bool by_extent) {
  for (Placement& placement : layout) {
    if (!placement.is_shard()) continue;
    const int64_t extent = first.size(placement.dim);
    int64_t dim = by_extent ? tensor.dim() - 1 : placement.dim;
    while (by_extent && dim >= 0 && tensor.size(dim) != extent) --dim;
    const bool fits = dim >= 0 && dim < tensor.dim() && tensor.size(dim) == extent;
    placement = fits ? placement.with_dim(static_cast<int>(dim)) : Placement::replicate();
  }
  return layout;
}

}  // namespace

std::vector<std::vector<Layout>> proof_layouts(const ProofCall& call, size_t num_axes, size_t most) {
  const std::vector<at::Tensor>& tensors = call.tensors();
  std::vector<std::vector<Placement>> choices;
  for (const at::Tensor& tensor : tensors) choices.push_back(placements_for(tensor));
  std::mt19937_64 random(call.seed() + num_axes);
  const auto draw = [&](size_t count) { return static_cast<size_t>(random() % count); };
  std::vector<std::vector<Layout>> cases;
  for (size_t i = 0; i < tensors.size(); ++i) {
    for (const Placement& placement : choices[i]) {
      std::vector<Layout> layouts(tensors.size(), Layout(num_axes));
      layouts[i][draw(num_axes)] = placement;
      if (!placement.is_replicate()) cases.push_back(layouts);
    }
  }
  for (size_t i = cases.size(); i > 1; --i) std::swap(cases[i - 1], cases[draw(i)]);
  cases.resize(std::min(cases.size(), most / 2));
  for (size_t tries = 0; cases.size() < most && tries < 4 * most; ++tries) {
    std::vector<Layout> layouts;
    for (size_t i = 0; i < tensors.size(); ++i) {
      Layout layout;
      for (size_t axis = 0; axis < num_axes; ++axis) layout.push_back(choices[i][draw(choices[i].size())]);
      // Half of them follow the first tensor, whose placements are taken in turn.
      if (i == 0 && tries % 2 == 0) layout[draw(num_axes)] = choices[0][(tries / 2 + 1) % choices[0].size()];
      if (i > 0 && tries % 4 != 3) layout = alike(layouts[0], tensors[0], tensors[i], tries % 2 == 0);
      if (!tensors[i].is_floating_point()) {
        for (Placement& placement : layout) placement = placement.is_partial() ? Placement::replicate() : placement;
      }
      simplify(layout);
      layouts.push_back(layout);
    }
    if (std::find(cases.begin(), cases.end(), layouts) == cases.end()) cases.push_back(layouts);
  }
  return cases;
}

std::string describe_layouts(const std::vector<Layout>& layouts) {
  std::string text;
  for (const Layout& layout : layouts) {
    text += text.empty() ? "(" : "; ";
    for (size_t axis = 0; axis < layout.size(); ++axis) text += (axis == 0 ? "" : ", ") + layout[axis].to_string();
  }
  return text + ")";
}

}  // namespace trireme
