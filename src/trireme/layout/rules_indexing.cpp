// Indexing, joining, and operators that only move elements.
#include <algorithm>
#include <numeric>

#include "trireme/layout/rules.h"

namespace trireme {
namespace {

using Sizes = std::vector<int64_t>;
enum IndexLabel : int { kIndex = 100 };  // distinct from labels of dimensions

std::vector<int> all_of(size_t count) {
  std::vector<int> inputs(count);
  std::iota(inputs.begin(), inputs.end(), 0);
  return inputs;
}

/// One input tensor; its dimensions may be sharded, except those in `fixed`.
OpRule along(const OpCall& call, const Sizes& fixed, size_t num_outputs = 1, bool is_linear = false) {
  OpRule rule;
  rule.inputs = {counting_labels(call.sizes(0).size(), fixed)};
  rule.outputs.assign(num_outputs, rule.inputs[0]);
  if (is_linear) rule.linear = {{0}};
  return rule;
}

OpRule triangle(const OpCall& call) { return along(call, {-1, -2}, 1, true); }
OpRule flip(const OpCall& call) { return along(call, call.integers(1), 1, true); }
OpRule sorted(const OpCall& call) { return along(call, {call.integer(1, -1)}, 2); }
OpRule sorted_stably(const OpCall& call) { return along(call, {call.integer(2, -1)}, 2); }
OpRule topk(const OpCall& call) { return along(call, {call.integer(2, -1)}, 2); }
/// Multiplies one half of a dimension by a gate made of the other.
OpRule glu(const OpCall& call) { return along(call, {call.integer(1, -1)}); }
OpRule glu_backward(const OpCall& call) {
  OpRule rule = along(call, {call.integer(2, -1)});
  rule.inputs.push_back(rule.inputs[0]);
  return rule;
}

OpRule roll(const OpCall& call) {
  const Sizes dims = call.integers(2);
  Sizes all(call.sizes(0).size());
  std::iota(all.begin(), all.end(), int64_t{0});
  return along(call, dims.empty() ? all : dims, 1, true);
}

/// (self, pad): pairs, starting with the last dimension.
OpRule padded(const OpCall& call) {
  const Sizes pad = call.integers(1);
  Sizes fixed;
  for (size_t i = 0; i < pad.size(); ++i) {
    if (pad[i] != 0) fixed.push_back(-1 - static_cast<int64_t>(i / 2));
  }
  return along(call, fixed);
}

OpRule repeat(const OpCall& call) {
  const Sizes repeats = call.integers(1);
  const size_t num_dims = call.sizes(0).size(), added = repeats.size() - num_dims;
  OpRule rule = along(call, {}, 1, true);
  for (size_t d = 0; d < num_dims; ++d) {
    if (repeats[added + d] != 1) rule.inputs[0][d] = kFixed;
  }
  rule.outputs = rule.inputs;
  rule.outputs[0].insert(rule.outputs[0].begin(), added, kFixed);
  return rule;
}

/// (tensors, dim). For compatibility, empty tensors [0] are ignored.
OpRule cat(const OpCall& call) {
  size_t num_dims = 0;
  for (const Sizes& sizes : call.tensors) num_dims = std::max(num_dims, sizes.size());
  OpRule rule;
  const Labels labels = counting_labels(num_dims, {call.integer(1, 0)});
  for (const Sizes& sizes : call.tensors) {
    const bool counts = sizes.size() == num_dims;
    rule.inputs.push_back(counts ? labels : Labels(sizes.size(), kFixed));
  }
  rule.outputs = {labels};
  rule.linear = {all_of(call.tensors.size())};
  return rule;
}
OpRule stack(const OpCall& call) {
  const Labels labels = counting_labels(call.tensors[0].size());
  OpRule rule;
  rule.inputs.assign(call.tensors.size(), labels);
  rule.outputs = {labels};
  rule.outputs[0].insert(rule.outputs[0].begin() + wrap_dim(call.integer(1, 0), labels.size() + 1), kFixed);
  rule.linear = {all_of(call.tensors.size())};
  return rule;
}

/// (self, dim, index): the rows that a list names.
OpRule index_select(const OpCall& call) {
  const size_t num_dims = call.sizes(0).size();
  if (num_dims == 0 || call.sizes(2).size() != 1) return {};
  const auto dim = static_cast<size_t>(wrap_dim(call.integer(1, 0), num_dims));
  OpRule rule = along(call, {call.integer(1, 0)}, 1, true);
  rule.inputs.push_back({kIndex});
  rule.outputs[0][dim] = kIndex;
  return rule;
}

/// (self, dim, index): an index for each element of the result.
OpRule gather(const OpCall& call) {
  const Sizes &self = call.sizes(0), &index = call.sizes(2);
  if (self.empty() || index.size() != self.size()) return {};
  const auto dim = static_cast<size_t>(wrap_dim(call.integer(1, 0), self.size()));
  OpRule rule = along(call, {call.integer(1, 0)}, 1, true);
  for (size_t d = 0; d < self.size(); ++d) {
    if (self[d] != index[d]) rule.inputs[0][d] = kFixed;
  }
  rule.inputs.push_back(rule.inputs[0]);
  rule.inputs[1][dim] = kIndex;
  rule.outputs = {rule.inputs[1]};
  return rule;
}

/// (self, dim, index[, source]): dimensions in which all have the same extent may be sharded, except `dim`.
OpRule scatter(const OpCall& call) {
  const Sizes& self = call.sizes(0);
  Labels labels = counting_labels(self.size(), {call.integer(1, 0)});
  for (const Sizes& sizes : call.tensors) {
    if (self.empty() || sizes.size() != self.size()) return {};
    for (size_t d = 0; d < self.size(); ++d) {
      if (sizes[d] != self[d]) labels[d] = kFixed;
    }
  }
  OpRule rule;
  rule.inputs.assign(call.tensors.size(), labels);
  rule.outputs = {labels};
  return rule;
}
OpRule scatter_source(const OpCall& call) {
  OpRule rule = scatter(call);
  if (!rule.outputs.empty()) rule.linear = {{0, 2}};
  return rule;
}

/// (self, dim, index, source): copies rows of the source to the positions in the list.
OpRule index_copy(const OpCall& call) {
  const Sizes& self = call.sizes(0);
  if (self.empty() || call.sizes(3).size() != self.size()) return {};
  OpRule rule = along(call, {call.integer(1, 0)});
  rule.inputs.push_back(Labels(call.sizes(2).size(), kFixed));
  rule.inputs.push_back(rule.inputs[0]);
  rule.linear = {{0, 2}};
  return rule;
}
OpRule index_add(const OpCall& call) {
  OpRule rule = index_copy(call);
  if (rule.outputs.empty() || call.sizes(2).size() != 1) return rule;
  rule.inputs[1] = {kIndex};
  rule.inputs[2][static_cast<size_t>(wrap_dim(call.integer(1, 0), call.sizes(0).size()))] = kIndex;
  rule.reduced = {kIndex};
  rule.addends = {0};
  return rule;
}
/// (self, dim, index, value)
OpRule index_fill(const OpCall& call) {
  OpRule rule = along(call, {call.integer(1, 0)});
  for (size_t i = 1; i < call.tensors.size(); ++i) rule.inputs.push_back(Labels(call.tensors[i].size(), kFixed));
  return rule;
}

/// Advanced indices: which dimensions of `self` they replace, and where their own dimensions are in the result.
struct AdvancedIndex {
  std::vector<bool> taken;
  size_t first = 0, num_own = 0;  ///< index dimensions in the result, starting at `first`
  bool is_known = true;
  AdvancedIndex(const OpCall& call, const TensorListArgument& list) : taken(call.tensors[0].size(), false) {
    std::vector<size_t> dims;
    for (size_t d = 0; d < list.indices.size(); ++d) {
      if (list.indices[d] < 0) continue;
      const auto tensor = static_cast<size_t>(list.indices[d]);
      is_known = is_known && !call.masks[tensor] && d < taken.size();  // a mask selects an unknown number of elements
      if (!is_known) return;
      taken[d] = true;
      dims.push_back(d);
      num_own = std::max(num_own, call.tensors[tensor].size());
    }
    if (dims.empty()) is_known = false;
    const bool together = !dims.empty() && dims.back() - dims.front() + 1 == dims.size();
    first = together ? dims.front() : 0;
  }
  Labels self() const {
    Labels labels;
    for (size_t d = 0; d < taken.size(); ++d) labels.push_back(taken[d] ? kFixed : static_cast<int>(d));
    return labels;
  }
  Labels result() const {
    Labels labels;
    for (size_t d = 0; d < taken.size(); ++d) {
      if (!taken[d]) labels.push_back(static_cast<int>(d));
    }
    labels.insert(labels.begin() + static_cast<std::ptrdiff_t>(std::min(first, labels.size())), num_own, kFixed);
    return labels;
  }
};

/// (self, indices): dimensions without an index may be sharded, and so may a single index.
OpRule index(const OpCall& call) {
  const auto* list = std::get_if<TensorListArgument>(&call.arguments[1]);
  if (list == nullptr) return {};
  const AdvancedIndex advanced(call, *list);
  OpRule rule;
  rule.inputs.assign(1, advanced.is_known ? advanced.self() : Labels(call.tensors[0].size(), kFixed));
  for (size_t i = 1; i < call.tensors.size(); ++i) rule.inputs.push_back(Labels(call.tensors[i].size(), kFixed));
  rule.outputs = {advanced.is_known ? advanced.result() : Labels{}};
  if (advanced.is_known && call.tensors.size() == 2) {
    for (size_t d = 0; d < advanced.num_own; ++d) {
      rule.inputs[1][d] = rule.outputs[0][advanced.first + d] = kIndex + static_cast<int>(d);
    }
  }
  if (advanced.is_known) rule.linear = {{0}};
  return rule;
}

/// (self, indices, values, accumulate): values are full-sized, or are broadcast and stay replicated.
OpRule index_put(const OpCall& call) {
  const auto* list = std::get_if<TensorListArgument>(&call.arguments[1]);
  if (list == nullptr) return {};
  const AdvancedIndex advanced(call, *list);
  OpRule rule;
  for (const Sizes& sizes : call.tensors) rule.inputs.push_back(Labels(sizes.size(), kFixed));
  const Labels result = advanced.is_known ? advanced.result() : Labels{};
  const Sizes& values = call.sizes(2);
  bool matches = advanced.is_known && values.size() == result.size();
  for (size_t d = 0; matches && d < result.size(); ++d) {
    matches = result[d] == kFixed || values[d] == call.tensors[0][static_cast<size_t>(result[d])];
  }
  if (matches) {
    rule.inputs[0] = advanced.self();
    rule.inputs.back() = result;
  }
  rule.outputs = {rule.inputs[0]};
  rule.linear = {{0, static_cast<int>(call.tensors.size()) - 1}};
  return rule;
}

/// Results that depend on all values: gathering everything is intended.
OpRule gathered(const OpCall& call) {
  OpRule rule;
  for (const Sizes& sizes : call.tensors) rule.inputs.push_back(Labels(sizes.size(), kFixed));
  rule.outputs = {Labels{}};
  return rule;
}

/// New tensors of given sizes: replicated, whatever the placement of the tensor they are made from.
OpRule made(const OpCall& call) {
  OpRule rule = gathered(call);
  rule.unread = {0};
  return rule;
}

/// If the sizes are those of the tensor, the result is sharded like it: autograd copies gradients in this way.
OpRule made_strided(const OpCall& call) {
  if (call.integers(1) != call.sizes(0)) return made(call);
  OpRule rule = along(call, {});
  rule.unread = {0};
  rule.sizes = call.sizes(0);
  rule.execution = Execution::kEmpty;
  return rule;
}

/// (self, offset, dim1, dim2): the diagonal becomes the last dimension.
OpRule diagonal(const OpCall& call) {
  const Sizes from = call.sizes(0);
  const int a = wrap_dim(call.integer(2, 0), from.size()), b = wrap_dim(call.integer(3, 1), from.size());
  OpRule rule;
  rule.map = [=](const Placement& cut, int) -> std::optional<Mapped> {
    if (cut.dim == a || cut.dim == b) return std::nullopt;
    const int there = cut.dim - (cut.dim > a ? 1 : 0) - (cut.dim > b ? 1 : 0);
    return Mapped{{{cut.with_dim(there), from[static_cast<size_t>(cut.dim)]}}};
  };
  return rule;
}
/// (grad, sizes, offset, dim1, dim2)
OpRule diagonal_backward(const OpCall& call) {
  const Sizes to = call.integers(1);
  const int a = wrap_dim(call.integer(3, 0), to.size()), b = wrap_dim(call.integer(4, 1), to.size());
  OpRule rule;
  rule.sizes_argument = 1;
  rule.map = [to, low = std::min(a, b), high = std::max(a, b)](const Placement& cut, int) -> std::optional<Mapped> {
    if (cut.dim + 2 >= static_cast<int>(to.size())) return std::nullopt;
    int there = cut.dim + (cut.dim >= low ? 1 : 0);
    there += there >= high ? 1 : 0;
    return Mapped{{{cut.with_dim(there), to[static_cast<size_t>(there)]}}};
  };
  return rule;
}

/// (self, dimension, size, step): windows along one dimension become the last dimension.
OpRule unfold(const OpCall& call) {
  OpRule rule = along(call, {call.integer(1, 0)}, 1, true);
  if (call.sizes(0).empty()) return {};
  rule.outputs[0].push_back(kFixed);
  return rule;
}
/// (grad, sizes, dim, size, step)
OpRule unfold_backward(const OpCall& call) {
  const Sizes to = call.integers(1);
  if (to.empty()) return {};
  OpRule rule;
  rule.outputs = {counting_labels(to.size(), {call.integer(2, 0)})};
  rule.inputs = rule.outputs;
  rule.inputs[0].push_back(kFixed);
  rule.linear = {{0}};
  rule.sizes_argument = 1;
  return rule;
}

}  // namespace

void add_indexing_rules(RuleTable& table) {
  table.add("cat", cat);
  table.add("stack", stack);
  table.add("index_select", index_select);
  table.add("gather", gather);
  table.add("scatter.value scatter_.value", scatter);
  table.add("scatter.src scatter_.src scatter_add scatter_add_", scatter_source);
  table.add("scatter_reduce.two scatter_reduce_.two", scatter);
  table.add("index_copy index_copy_", index_copy);
  table.add("index_add index_add_", index_add);
  table.add("index_fill.int_Scalar index_fill_.int_Scalar index_fill.int_Tensor", index_fill);
  table.add("index.Tensor _unsafe_index.Tensor", index);
  table.add("index_put index_put_ _index_put_impl_ _unsafe_index_put", index_put);
  table.add("tril triu tril_ triu_", triangle);
  table.add("flip", flip);
  table.add("roll", roll);
  table.add("repeat", repeat);
  table.add("constant_pad_nd", padded);
  table.add("sort", sorted);
  table.add("sort.stable", sorted_stably);
  table.add("topk", topk);
  table.add("glu", glu);
  table.add("glu_backward", glu_backward);
  table.add("diagonal diagonal_copy", diagonal);
  table.add("diagonal_backward", diagonal_backward);
  table.add("unfold unfold_copy", unfold);
  table.add("unfold_backward", unfold_backward);
  table.add("_local_scalar_dense equal masked_select nonzero _unique _unique2 median trace bincount", gathered);
  table.add("new_zeros new_ones new_full new_empty", made);
  table.add("new_empty_strided", made_strided);
}

}  // namespace trireme
