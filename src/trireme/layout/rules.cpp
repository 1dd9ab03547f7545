#include "trireme/layout/rules.h"

#include <algorithm>
#include <numeric>

namespace trireme {
namespace {

const RuleTable& table() {
  static const RuleTable rules = [] {
    RuleTable all;
    add_pointwise_rules(all);
    add_reduction_rules(all);
    add_product_rules(all);
    add_view_rules(all);
    add_network_rules(all);
    add_image_rules(all);
    add_indexing_rules(all);
    return all;
  }();
  return rules;
}

}  // namespace

void RuleTable::add(std::string_view names, RuleWriter writer) {
  while (!names.empty()) {
    const size_t end = std::min(names.find(' '), names.size());
    if (end > 0) all_.emplace("aten::" + std::string(names.substr(0, end)), writer);
    names.remove_prefix(std::min(end + 1, names.size()));
  }
}

std::optional<OpRule> find_rule(const OpCall& call) {
  const auto at = table().all().find(call.name);
  if (at == table().all().end()) return std::nullopt;
  OpRule rule = at->second(call);
  if (rule.outputs.empty() && !rule.map) return std::nullopt;
  return rule;
}

bool has_rule(std::string_view name) { return table().all().contains(name); }

std::vector<std::string> covered_operators() {
  std::vector<std::string> names;
  for (const auto& [name, writer] : table().all()) names.push_back(name);
  return names;
}

std::vector<Labels> broadcast_labels(const std::vector<std::vector<int64_t>>& tensors, Labels* output) {
  size_t num_dims = 0;
  for (const auto& sizes : tensors) num_dims = std::max(num_dims, sizes.size());
  std::vector<int64_t> extents(num_dims, 1);
  for (const auto& sizes : tensors) {
    for (size_t d = 0; d < sizes.size(); ++d) {
      int64_t& extent = extents[num_dims - sizes.size() + d];
      if (sizes[d] != 1) extent = sizes[d];
    }
  }
  std::vector<Labels> labels;
  for (const auto& sizes : tensors) {
    Labels own(sizes.size(), kFixed);
    for (size_t d = 0; d < sizes.size(); ++d) {
      const size_t label = num_dims - sizes.size() + d;
      if (sizes[d] == extents[label]) own[d] = static_cast<int>(label);
    }
    labels.push_back(std::move(own));
  }
  if (output) {
    output->resize(num_dims);
    for (size_t d = 0; d < num_dims; ++d) (*output)[d] = static_cast<int>(d);
  }
  return labels;
}

Labels counting_labels(size_t num_dims, const std::vector<int64_t>& fixed) {
  Labels labels(num_dims);
  std::iota(labels.begin(), labels.end(), 0);
  for (const int64_t dim : fixed) {
    if (num_dims > 0) labels[static_cast<size_t>(wrap_dim(dim, num_dims))] = kFixed;
  }
  return labels;
}

int wrap_dim(int64_t dim, size_t num_dims) {
  return static_cast<int>(dim < 0 ? dim + static_cast<int64_t>(std::max<size_t>(num_dims, 1)) : dim);
}

}  // namespace trireme
