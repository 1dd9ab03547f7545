// Matmuls, with labels as in einsum.
#include "trireme/layout/rules.h"

namespace trireme {
namespace {

enum ProductLabel : int { kM, kK, kN, kB };

OpRule product(std::vector<Labels> inputs, Labels output) {
  OpRule rule;
  rule.inputs = std::move(inputs);
  rule.outputs = {std::move(output)};
  rule.reduced = {kK};
  rule.linear = {{0}, {1}};
  return rule;
}

/// self + product: self is broadcast to the product, and is added once.
OpRule with_addend(const OpCall& call, OpRule rule) {
  const std::vector<int64_t>& sizes = call.tensors[0];
  const Labels& output = rule.outputs[0];
  Labels own(sizes.size(), kFixed);
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] != 1) own[d] = output[output.size() - sizes.size() + d];
  }
  rule.inputs.insert(rule.inputs.begin(), std::move(own));
  rule.addends = {0};
  rule.linear = {{0, 1}, {0, 2}};
  return rule;
}

OpRule mm(const OpCall&) { return product({{kM, kK}, {kK, kN}}, {kM, kN}); }
OpRule mv(const OpCall&) { return product({{kM, kK}, {kK}}, {kM}); }
OpRule dot(const OpCall&) { return product({{kK}, {kK}}, {}); }
OpRule bmm(const OpCall&) { return product({{kB, kM, kK}, {kB, kK, kN}}, {kB, kM, kN}); }
OpRule addr(const OpCall& call) { return with_addend(call, product({{kM}, {kN}}, {kM, kN})); }
OpRule addmm(const OpCall& call) { return with_addend(call, mm(call)); }
OpRule addmv(const OpCall& call) { return with_addend(call, mv(call)); }
OpRule baddbmm(const OpCall& call) { return with_addend(call, bmm(call)); }

}  // namespace

void add_product_rules(RuleTable& table) {
  table.add("mm", mm);
  table.add("mv", mv);
  table.add("dot vdot", dot);
  table.add("bmm", bmm);
  table.add("addr addr_", addr);
  table.add("addmm addmm_", addmm);
  table.add("addmv addmv_", addmv);
  table.add("baddbmm baddbmm_", baddbmm);
}

}  // namespace trireme
