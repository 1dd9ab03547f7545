#include "trireme/layout/operator.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace trireme {
namespace {

const Placement kReplicate = Placement::replicate();
const Placement kPartial = Placement::partial();

/// A call of tensors only, and what is chosen for it on an axis of two.
Strategy chosen(const std::string& name, std::vector<std::vector<int64_t>> tensors, std::vector<Placement> current,
                const std::vector<int64_t>& integers = {}) {
  OpCall call;
  call.name = name;
  AxisState state;
  state.axis_size = 2;
  for (size_t i = 0; i < tensors.size(); ++i) {
    call.arguments.emplace_back(std::in_place_type<TensorArgument>, static_cast<int>(i));
    double elements = 1;
    for (const int64_t size : tensors[i]) elements *= static_cast<double>(size);
    state.local_elements.push_back(current[i].is_shard() ? elements / 2 : elements);
  }
  if (!integers.empty()) call.arguments.emplace_back(std::in_place_type<std::vector<int64_t>>, integers);
  call.masks.assign(tensors.size(), false);
  call.tensors = std::move(tensors);
  state.current = std::move(current);
  const auto rule = find_rule(call);
  EXPECT_TRUE(rule.has_value()) << name;
  return *choose_strategy(*rule, call, state);
}

TEST(Operator, ProductsFollowTheirOperands) {
  const auto columns = chosen("aten::mm", {{8, 4}, {4, 6}}, {kReplicate, Placement::shard(1)});
  EXPECT_EQ(columns.outputs[0].placement, Placement::shard(1));
  EXPECT_EQ(columns.outputs[0].extent, 6);
  EXPECT_EQ(columns.cost, 0);
  const auto rows = chosen("aten::mm", {{8, 4}, {4, 6}}, {Placement::shard(1), Placement::shard(0)});
  EXPECT_EQ(rows.outputs[0].placement, kPartial);
  EXPECT_EQ(rows.cost, 0);
}

TEST(Operator, AnAddendOfAPartialSumCountsOnce) {
  const auto strategy =
      chosen("aten::addmm", {{6}, {8, 4}, {4, 6}}, {kReplicate, Placement::shard(1), Placement::shard(0)});
  EXPECT_EQ(strategy.outputs[0].placement, kPartial);
  EXPECT_EQ(strategy.inputs[0], kPartial);
}

TEST(Operator, OnlyLinearOperatorsPassSums) {
  EXPECT_EQ(chosen("aten::neg", {{4, 4}}, {kPartial}).outputs[0].placement, kPartial);
  const auto squashed = chosen("aten::tanh", {{4, 4}}, {kPartial});
  EXPECT_EQ(squashed.inputs[0], kReplicate);
  EXPECT_GT(squashed.cost, 0);
  EXPECT_EQ(chosen("aten::add.Tensor", {{4, 4}, {4, 4}}, {kPartial, kPartial}).outputs[0].placement, kPartial);
  EXPECT_EQ(chosen("aten::add.Tensor", {{4, 4}, {4, 4}}, {kPartial, kReplicate}).outputs[0].placement, kReplicate);
}

TEST(Operator, ViewsKeepCuts) {
  const auto heads = chosen("aten::view", {{2, 6, 12}}, {Placement::shard(2)}, {2, 6, 4, 3});
  EXPECT_EQ(heads.outputs[0].placement, Placement::shard(2));
  const auto flat = chosen("aten::view", {{2, 6, 12}}, {Placement::shard(1)}, {12, 12});
  EXPECT_EQ(flat.outputs[0].placement, Placement::shard(0, 2));
  const auto joined = chosen("aten::view", {{3, 2}}, {Placement::shard(0)}, {6});
  EXPECT_EQ(joined.outputs[0].placement, Placement::shard(0, 1, 2));
}

/// softmax(x, dim 1) of [4, 6], cut along that dimension.
Strategy softmax_of(const Placement& cut) {
  OpCall call;
  call.name = "aten::_softmax";
  call.arguments.emplace_back(std::in_place_type<TensorArgument>, 0);
  call.arguments.emplace_back(int64_t{1});
  call.arguments.emplace_back(false);
  call.tensors = {{4, 6}};
  call.masks = {false};
  return *choose_strategy(*find_rule(call), call, {2, {cut}, {12}, {}, {}});
}

TEST(Operator, ExecutionsOfTheirOwnTakePlainCutsOnly) {
  const Strategy plain = softmax_of(Placement::shard(1));
  EXPECT_EQ(plain.inputs[0], Placement::shard(1));
  EXPECT_EQ(plain.execution, Execution::kSoftmax);
  Placement uneven = Placement::shard(1);
  uneven.ratio = {2, 1, 0};
  for (const Placement& cut : {uneven, Placement::shard(1, 3)}) {
    EXPECT_EQ(softmax_of(cut).inputs[0], kReplicate) << cut.to_string();
  }
}

TEST(Operator, ADimensionIsCutTwiceOnlyInPlainBlocks) {
  OpCall call;
  call.name = "aten::neg";
  call.arguments.emplace_back(std::in_place_type<TensorArgument>, 0);
  call.tensors = {{8, 4}};
  call.masks = {false};
  const OpRule rule = *find_rule(call);
  const auto input_of = [&](const Placement& cut) {
    return choose_strategy(rule, call, {2, {cut}, {16}, {}, {rule.inputs[0][0]}})->inputs[0];
  };
  EXPECT_EQ(input_of(Placement::shard(0)), Placement::shard(0));
  EXPECT_EQ(input_of(Placement::shard(0, 2)), kReplicate);
}

TEST(Operator, WhatIsWrittenStays) {
  OpCall call;
  call.name = "aten::add_.Tensor";
  call.arguments.emplace_back(std::in_place_type<TensorArgument>, 0);
  call.arguments.emplace_back(std::in_place_type<TensorArgument>, 1);
  call.tensors = {{4}, {4}};
  AxisState state{2, {Placement::shard(0), kPartial}, {2, 4}, {0}, {}, {{0, 0}}};
  const auto strategy = choose_strategy(*find_rule(call), call, state);
  ASSERT_TRUE(strategy.has_value());
  EXPECT_EQ(strategy->inputs[1], Placement::shard(0));
  call.name = "aten::exp_";
  call.arguments.pop_back();
  call.tensors.pop_back();
  state = {2, {kPartial}, {4}, {0}, {}, {{0, 0}}};
  EXPECT_FALSE(choose_strategy(*find_rule(call), call, state).has_value());
}

TEST(Operator, EveryNameIsThereOnce) {
  const std::vector<std::string> names = covered_operators();
  EXPECT_GE(names.size(), 150u);
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
  EXPECT_TRUE(has_rule("aten::mm"));
  EXPECT_FALSE(has_rule("aten::linalg_svd"));
  OpCall unknown;
  unknown.name = "aten::linalg_svd";
  EXPECT_FALSE(find_rule(unknown).has_value());
}

}  // namespace
}  // namespace trireme
