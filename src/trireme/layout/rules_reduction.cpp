// Sums, means, extrema and norms over dimensions.
#include <algorithm>

#include "trireme/layout/rules.h"

namespace trireme {
namespace {

/// Dimensions that the call reduces: an int or int[] argument; all if it is missing or empty.
std::vector<bool> reduced_dims(const OpCall& call, size_t argument) {
  const size_t num_dims = call.sizes(0).size();
  const std::vector<int64_t> dims = call.integers(argument);
  std::vector<bool> reduced(num_dims, dims.empty());
  for (const int64_t dim : dims) {
    if (num_dims > 0) reduced[static_cast<size_t>(wrap_dim(dim, num_dims))] = true;
  }
  return reduced;
}

OpRule reduction(const OpCall& call, size_t dims_argument, bool keep, size_t num_outputs = 1) {
  const std::vector<bool> reduced = reduced_dims(call, dims_argument);
  OpRule rule;
  Labels input, output;
  for (size_t d = 0; d < reduced.size(); ++d) {
    const int label = static_cast<int>(d);
    input.push_back(label);
    if (reduced[d]) rule.reduced.push_back(label);
    if (!reduced[d]) output.push_back(label);
    if (reduced[d] && keep) output.push_back(kFixed);
  }
  rule.inputs = {input};
  rule.outputs.assign(num_outputs, output);
  return rule;
}

OpRule sum(const OpCall& call) {
  OpRule rule = reduction(call, 1, call.flag(2));
  rule.linear = {{0}};
  return rule;
}
OpRule sum_of_all(const OpCall& call) {
  OpRule rule = reduction(call, call.arguments.size(), false);
  rule.linear = {{0}};
  return rule;
}
OpRule averaged(OpRule rule) {
  rule.linear = {{0}};
  for (const int label : rule.reduced) rule.special.emplace_back(label, Execution::kMean);
  return rule;
}
OpRule mean(const OpCall& call) { return averaged(reduction(call, 1, call.flag(2))); }
OpRule mean_of_all(const OpCall& call) { return averaged(reduction(call, call.arguments.size(), false)); }

template <PartialOp kOp>
OpRule extreme(const OpCall& call) {
  OpRule rule = reduction(call, 1, call.flag(2));
  rule.reduction = kOp;
  return rule;
}
template <PartialOp kOp>
OpRule extreme_of_all(const OpCall& call) {
  OpRule rule = reduction(call, call.arguments.size(), false);
  rule.reduction = kOp;
  return rule;
}

/// Only dimensions that are not reduced may be sharded: (self, dim, keepdim).
template <size_t kOutputs>
OpRule along_dims(const OpCall& call) {
  OpRule rule = reduction(call, 1, call.flag(2), kOutputs);
  rule.reduced.clear();
  return rule;
}
OpRule along_all(const OpCall& call) {
  OpRule rule = reduction(call, call.arguments.size(), false);
  rule.reduced.clear();
  return rule;
}

/// The result has the sizes of the input: (self, dim).
OpRule scanned(const OpCall& call) {
  OpRule rule = along_dims<1>(call);
  const Labels all = rule.inputs[0];
  const int dim = wrap_dim(call.integer(1, 0), call.sizes(0).size());
  rule.inputs = {all};
  if (!all.empty()) rule.inputs[0][static_cast<size_t>(dim)] = kFixed;
  rule.outputs = rule.inputs;
  rule.linear = {{0}};
  return rule;
}
OpRule scanned_without_sum(const OpCall& call) {
  OpRule rule = scanned(call);
  rule.linear.clear();
  return rule;
}

OpRule scanned_with_indices(const OpCall& call) {
  OpRule rule = scanned_without_sum(call);
  rule.outputs.push_back(rule.outputs[0]);
  return rule;
}

/// (self, k, dim, keepdim)
OpRule kth_value(const OpCall& call) {
  OpRule rule = reduction(call, 2, call.flag(3), 2);
  rule.reduced.clear();
  return rule;
}

/// (self, ord, dim, keepdim): any sharding is allowed.
OpRule vector_norm(const OpCall& call) {
  OpRule rule = reduction(call, 2, call.flag(3));
  for (const int label : rule.reduced) rule.special.emplace_back(label, Execution::kVectorNorm);
  return rule;
}

/// (self, dim, correction, keepdim)
template <size_t kOutputs>
OpRule spread(const OpCall& call) {
  OpRule rule = reduction(call, 1, call.flag(3), kOutputs);
  rule.reduced.clear();
  return rule;
}

}  // namespace

void add_reduction_rules(RuleTable& table) {
  table.add("sum.dim_IntList nansum", sum);
  table.add("sum", sum_of_all);
  table.add("mean.dim", mean);
  table.add("mean", mean_of_all);
  table.add("amax", extreme<PartialOp::kMax>);
  table.add("amin", extreme<PartialOp::kMin>);
  table.add("max", extreme_of_all<PartialOp::kMax>);
  table.add("min", extreme_of_all<PartialOp::kMin>);
  table.add("argmax argmin prod.dim_int all.dim any.dim logsumexp all.dims any.dims", along_dims<1>);
  table.add("all any prod", along_all);
  table.add("max.dim min.dim median.dim nanmedian.dim mode aminmax", along_dims<2>);
  table.add("cummax cummin", scanned_with_indices);
  table.add("kthvalue", kth_value);
  table.add("cumsum", scanned);
  table.add("cumprod logcumsumexp", scanned_without_sum);
  table.add("linalg_vector_norm norm.ScalarOpt_dim norm.Scalar", vector_norm);
  table.add("var.correction std.correction", spread<1>);
  table.add("var_mean.correction std_mean.correction", spread<2>);
}

}  // namespace trireme
