// Views: the same elements with other sizes. [Note: Pieces] explains why shardings survive them.
#include <algorithm>
#include <numeric>

#include "trireme/layout/rules.h"

namespace trireme {
namespace {

using Sizes = std::vector<int64_t>;

int64_t product(const Sizes& sizes, size_t first, size_t last) {
  return std::accumulate(sizes.begin() + static_cast<std::ptrdiff_t>(first),
                         sizes.begin() + static_cast<std::ptrdiff_t>(last), int64_t{1}, std::multiplies<>());
}

Sizes resolve(Sizes sizes, int64_t num_elements) {
  const auto open = std::find(sizes.begin(), sizes.end(), -1);
  if (open != sizes.end()) *open = num_elements / std::max<int64_t>(1, -product(sizes, 0, sizes.size()));
  return sizes;
}

/// Elements that stay together in an even sharding, however its unit is written.
int64_t shortest_block(const Placement& cut, int64_t extent, int axis_size) {
  const int64_t per_part = extent / (cut.stretches * (cut.ratio[0] + cut.ratio[1] + cut.ratio[2]));
  int64_t block = 0;
  for (const int64_t part : cut.ratio) block = std::gcd(block, part * per_part / axis_size);
  return block;
}

/// Maps the sharding of a dimension of `from` to `to`.
std::optional<Mapped> reshape(const Sizes& from, const Sizes& to, const Placement& cut, int axis_size) {
  const auto dim = static_cast<size_t>(cut.dim);
  const int64_t total = product(from, 0, from.size());
  if (total == 0 || total != product(to, 0, to.size())) return std::nullopt;
  const int64_t before = product(from, 0, dim), after = product(from, dim + 1, from.size());
  const bool even = is_even(cut, from[dim], axis_size);
  const bool equal_stretches = cut.ratio == Placement::Ratio{1, 0, 0};
  const int64_t stretches = before * cut.stretches;
  const int64_t unit = (even ? shortest_block(cut, from[dim], axis_size) : cut.unit) * after;
  for (size_t e = 0; e < to.size(); ++e) {
    const int64_t outside = product(to, 0, e), inside = product(to, e + 1, to.size());
    if (stretches % outside != 0 || unit % inside != 0) continue;
    if (!equal_stretches && outside != before) continue;
    Placement there = cut.with_dim(static_cast<int>(e));
    there.stretches = stretches / outside;
    there.unit = unit / inside;
    return Mapped{{{canonical(there, to[e], axis_size), to[e]}}};
  }
  return std::nullopt;
}

OpRule reshaped(const OpCall& call, Sizes to) {
  OpRule rule;
  const Sizes from = call.sizes(0);
  rule.map = [from, to = std::move(to)](const Placement& cut, int axis_size) {
    return reshape(from, to, cut, axis_size);
  };
  return rule;
}

OpRule view(const OpCall& call) {
  const Sizes& from = call.sizes(0);
  OpRule rule = reshaped(call, resolve(call.integers(1), product(from, 0, from.size())));
  rule.sizes_argument = 1;
  rule.sizes = resolve(call.integers(1), product(from, 0, from.size()));
  return rule;
}

/// With explicit strides, which are those of the whole.
OpRule reshape_alias(const OpCall& call) {
  OpRule rule = view(call);
  rule.execution = Execution::kReshape;
  return rule;
}

/// Dimension `d` of the result is dimension order[d] of the tensor.
OpRule permuted(const OpCall& call, std::vector<int> order) {
  OpRule rule;
  const Sizes from = call.sizes(0);
  rule.map = [from, order = std::move(order)](const Placement& cut, int) -> std::optional<Mapped> {
    const auto at = std::find(order.begin(), order.end(), cut.dim);
    if (at == order.end()) return std::nullopt;
    return Mapped{{{cut.with_dim(static_cast<int>(at - order.begin())), from[static_cast<size_t>(cut.dim)]}}};
  };
  return rule;
}

std::vector<int> counting(size_t num_dims) {
  std::vector<int> order(num_dims);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

OpRule permute(const OpCall& call) {
  std::vector<int> order;
  for (const int64_t dim : call.integers(1)) order.push_back(wrap_dim(dim, call.sizes(0).size()));
  return permuted(call, order);
}
OpRule transpose(const OpCall& call) {
  const size_t n = call.sizes(0).size();
  std::vector<int> order = counting(n);
  if (n > 0) {
    std::swap(order[static_cast<size_t>(wrap_dim(call.integer(1, 0), n))],
              order[static_cast<size_t>(wrap_dim(call.integer(2, 0), n))]);
  }
  return permuted(call, order);
}
OpRule turned(const OpCall& call) {
  std::vector<int> order = counting(call.sizes(0).size());
  std::reverse(order.begin(), order.end());
  return permuted(call, order);
}

OpRule unsqueeze(const OpCall& call) {
  const Sizes from = call.sizes(0);
  OpRule rule;
  rule.map = [from, at = wrap_dim(call.integer(1, 0), from.size() + 1)](const Placement& cut,
                                                                        int) -> std::optional<Mapped> {
    return Mapped{{{cut.with_dim(cut.dim + (cut.dim >= at ? 1 : 0)), from[static_cast<size_t>(cut.dim)]}}};
  };
  return rule;
}
OpRule squeeze(const OpCall& call) {
  const Sizes& from = call.sizes(0);
  const Sizes dims = call.integers(1);
  const bool all = call.arguments.size() < 2;
  Sizes to;
  for (size_t d = 0; d < from.size(); ++d) {
    const bool named = std::any_of(dims.begin(), dims.end(),
                                   [&](int64_t dim) { return wrap_dim(dim, from.size()) == static_cast<int>(d); });
    if (from[d] != 1 || !(all || named)) to.push_back(from[d]);
  }
  OpRule rule = reshaped(call, to);
  rule.sizes = to;
  rule.execution = Execution::kReshape;  // a part may have one element where the whole has more
  return rule;
}

OpRule expand(const OpCall& call) {
  const Sizes from = call.sizes(0), to = call.integers(1);
  OpRule rule;
  rule.sizes_argument = 1;
  rule.map = [from, added = static_cast<int>(to.size() - from.size())](const Placement& cut,
                                                                       int) -> std::optional<Mapped> {
    const int64_t extent = from[static_cast<size_t>(cut.dim)];
    if (extent == 1) return std::nullopt;
    return Mapped{{{cut.with_dim(cut.dim + added), extent}}};
  };
  return rule;
}

/// A range of one dimension: other dimensions may be sharded; this one may if the range is a number of whole stretches.
OpRule slice(const OpCall& call) {
  const Sizes from = call.sizes(0);
  const int dim = wrap_dim(call.integer(1, 0), from.size());
  const int64_t extent = from.empty() ? 0 : from[static_cast<size_t>(dim)];
  const auto clip = [extent](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + extent : at, 0, extent); };
  const int64_t first = clip(call.integer(2, 0)), last = std::max(first, clip(call.integer(3, extent)));
  const int64_t step = call.integer(4, 1);
  const bool counts_from_start = call.integer(2, 0) >= 0 && call.integer(3, extent) >= 0;
  OpRule rule;
  rule.map = [=](const Placement& cut, int axis_size) -> std::optional<Mapped> {
    if (cut.dim != dim) return Mapped{{{cut, from[static_cast<size_t>(cut.dim)]}}};
    if (first == 0 && last == extent && step == 1) return Mapped{{{cut, extent}}};
    const int64_t stretch = extent / cut.stretches;
    if (step != 1 || !counts_from_start || cut.ratio != Placement::Ratio{1, 0, 0} || first % stretch != 0 ||
        last % stretch != 0 || first == last || !is_even(cut, extent, axis_size)) {
      return std::nullopt;
    }
    Placement there = cut;
    there.stretches = (last - first) / stretch;
    return Mapped{{{canonical(there, last - first, axis_size), last - first}}, {2, 3}};
  };
  return rule;
}

OpRule select(const OpCall& call) {
  const Sizes from = call.sizes(0);
  OpRule rule;
  rule.map = [from, dim = wrap_dim(call.integer(1, 0), from.size())](const Placement& cut,
                                                                     int) -> std::optional<Mapped> {
    if (cut.dim == dim) return std::nullopt;
    return Mapped{{{cut.with_dim(cut.dim - (cut.dim > dim ? 1 : 0)), from[static_cast<size_t>(cut.dim)]}}};
  };
  return rule;
}

/// Splits one dimension into pieces of `sizes`.
OpRule split_into(const OpCall& call, int dim, const Sizes& sizes, std::vector<int> counts) {
  const Sizes from = call.sizes(0);
  OpRule rule;
  rule.map = [=](const Placement& cut, int axis_size) -> std::optional<Mapped> {
    if (cut.dim != dim) return Mapped{{{cut, from[static_cast<size_t>(cut.dim)]}}};
    const int64_t extent = from[static_cast<size_t>(dim)];
    if (!is_even(cut, extent, axis_size)) return std::nullopt;
    const int64_t weight = cut.ratio[0] + cut.ratio[1] + cut.ratio[2], per_part = extent / (cut.stretches * weight);
    Mapped mapped{{}, counts};
    if (weight > 1) {  // queries, keys and values: each piece is a number of whole parts of the ratio
      size_t part = 0;
      if (cut.stretches != 1) return std::nullopt;
      for (const int64_t size : sizes) {
        Placement there = Placement::shard(dim);
        there.ratio = {0, 0, 0};
        int64_t covered = 0;
        for (size_t i = 0; covered < size && part < cut.ratio.size(); ++i, ++part) {
          there.ratio[i] = cut.ratio[part];
          covered += cut.ratio[part] * per_part;
        }
        if (covered != size) return std::nullopt;
        if (there.ratio[1] == 0) there.ratio = {1, 0, 0};
        mapped.outputs.push_back({there, size});
      }
      return mapped;
    }
    for (const int64_t size : sizes) {
      if (size == 0 || size % per_part != 0) return std::nullopt;
      mapped.outputs.push_back({canonical(Placement::shard(dim, size / per_part, cut.unit), size, axis_size), size});
    }
    return mapped;
  };
  return rule;
}

OpRule split(const OpCall& call) {
  const Sizes& from = call.sizes(0);
  const int dim = wrap_dim(call.integer(2, 0), from.size());
  const int64_t extent = from[static_cast<size_t>(dim)], each = std::max<int64_t>(1, call.integer(1, 1));
  Sizes sizes;
  for (int64_t at = 0; at < extent; at += each) sizes.push_back(std::min(each, extent - at));
  return split_into(call, dim, sizes, {1});
}
OpRule split_with_sizes(const OpCall& call) {
  const int dim = wrap_dim(call.integer(2, 0), call.sizes(0).size());
  return split_into(call, dim, call.integers(1), {1});
}
OpRule unbind(const OpCall& call) { return select(call); }

/// Gradients of views: (grad, input_sizes, dim, …); the gradient's sharding maps back through the view.
OpRule slice_backward(const OpCall& call) {
  const Sizes from = call.sizes(0), to = call.integers(1);
  OpRule rule;
  rule.sizes_argument = 1;
  rule.map = [=, dim = wrap_dim(call.integer(2, 0), to.size())](const Placement& cut, int) -> std::optional<Mapped> {
    if (cut.dim == dim) return std::nullopt;
    return Mapped{{{cut, to[static_cast<size_t>(cut.dim)]}}};
  };
  return rule;
}
OpRule select_backward(const OpCall& call) {
  const Sizes to = call.integers(1);
  OpRule rule;
  rule.sizes_argument = 1;
  rule.map = [=, dim = wrap_dim(call.integer(2, 0), to.size())](const Placement& cut, int) -> std::optional<Mapped> {
    const int there = cut.dim + (cut.dim >= dim ? 1 : 0);
    return Mapped{{{cut.with_dim(there), to[static_cast<size_t>(there)]}}};
  };
  return rule;
}

}  // namespace

void add_view_rules(RuleTable& table) {
  table.add("view _unsafe_view _reshape_copy view_copy", view);
  table.add("_reshape_alias", reshape_alias);
  table.add("permute permute_copy", permute);
  table.add("transpose.int transpose_copy.int transpose_", transpose);
  table.add("t t_copy t_", turned);
  table.add("unsqueeze unsqueeze_copy unsqueeze_", unsqueeze);
  table.add(
      "squeeze squeeze.dim squeeze.dims squeeze_copy squeeze_copy.dim squeeze_copy.dims "
      "squeeze_ squeeze_.dim squeeze_.dims",
      squeeze);
  table.add("expand expand_copy", expand);
  table.add("slice.Tensor slice_copy.Tensor", slice);
  table.add("select.int select_copy.int", select);
  table.add("split.Tensor unsafe_split.Tensor", split);
  table.add("split_with_sizes unsafe_split_with_sizes split_with_sizes_copy", split_with_sizes);
  table.add("unbind.int unbind_copy.int", unbind);
  table.add("slice_backward", slice_backward);
  table.add("select_backward", select_backward);
}

}  // namespace trireme
