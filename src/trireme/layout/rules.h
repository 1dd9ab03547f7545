// The families of rules: each file adds its operators to the table that find_rule() reads.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/layout/operator.h"

namespace trireme {

/// Writes the rule for one call; a rule without outputs means that there is none for such a call.
using RuleWriter = OpRule (*)(const OpCall&);

class RuleTable {
 public:
  /// `names` without "aten::", separated by spaces: "add.Tensor sub.Tensor".
  void add(std::string_view names, RuleWriter writer);
  const std::map<std::string, RuleWriter, std::less<>>& all() const { return all_; }

 private:
  std::map<std::string, RuleWriter, std::less<>> all_;
};

void add_pointwise_rules(RuleTable& table);
void add_reduction_rules(RuleTable& table);
void add_product_rules(RuleTable& table);
void add_view_rules(RuleTable& table);
void add_network_rules(RuleTable& table);
void add_image_rules(RuleTable& table);
void add_indexing_rules(RuleTable& table);

/// Labels of tensors that are broadcast against each other: dimensions are numbered from the last. Broadcast dimensions
/// of size 1 have no label.
std::vector<Labels> broadcast_labels(const std::vector<std::vector<int64_t>>& tensors, Labels* output = nullptr);
/// 0, 1, 2, …: every dimension may be sharded, except those in `fixed`.
Labels counting_labels(size_t num_dims, const std::vector<int64_t>& fixed = {});
/// −1 is the last of `num_dims`.
int wrap_dim(int64_t dim, size_t num_dims);

}  // namespace trireme
