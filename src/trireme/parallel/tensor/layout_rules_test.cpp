#include "trireme/parallel/tensor/layout_rules.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "trireme/base/error.h"
#include "trireme/comm/world.h"

namespace trireme {
namespace {

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(LayoutRules, TheFirstRuleThatMatchesTheWholeNameCounts) {
  const Mesh mesh = Mesh::parse("dp=2,tp=2");
  const LayoutRules rules = {{"a\\.weight", {{"tp", Placement::shard(1)}}},
                             {".*\\.weight", {{"tp", Placement::shard(0)}, {"dp", Placement::shard(1)}}}};
  const std::vector<Placement> first = {Placement::replicate(), Placement::shard(1)};
  const std::vector<Placement> second = {Placement::shard(1), Placement::shard(0)};
  EXPECT_EQ(placements_for("a.weight", rules, mesh), first);
  EXPECT_EQ(placements_for("b.weight", rules, mesh), second);
  EXPECT_EQ(placements_for("b.weights", rules, mesh), std::vector<Placement>(2));
  EXPECT_NE(error_of([&] { placements_for("b.weight", rules, Mesh::parse("tp=2")); }).find("the axis dp"),
            std::string::npos);
}

TEST(LayoutRules, ByNamesOfDimensions) {
  const Mesh mesh = Mesh::parse("dp=2,tp=4");
  const LayoutRules rules = rules_by_dims({{"token", "vocab hidden"}, {"up", "inner hidden"}, {"norm", "hidden"}},
                                          "vocab:tp; inner : tp; hidden:dp", mesh);
  const std::vector<Placement> token = {Placement::shard(1), Placement::shard(0)};
  EXPECT_EQ(placements_for("token", rules, mesh), token);
  EXPECT_EQ(placements_for("norm", rules, mesh)[0], Placement::shard(0));
  EXPECT_EQ(placements_for("norm", rules, mesh)[1], Placement::replicate());
  const auto error = [&](const char* layout) { return error_of([&] { rules_by_dims({{"w", "a b"}}, layout, mesh); }); };
  EXPECT_NE(error("a:tp; b:tp").find("two dimensions on the axis tp"), std::string::npos);
  EXPECT_NE(error("a:tp; a:dp").find("twice"), std::string::npos);
  EXPECT_NE(error("a").find("is not DIMENSION:AXIS"), std::string::npos);
  EXPECT_NE(error("a:pp"), "no error");
}

TEST(LayoutRules, AWholeModule) {
  run_as_threads(2, [](World& world) {
    const auto mesh = DeviceMesh::make(world.comm(), Mesh::parse("tp=2"));
    torch::nn::Sequential net(torch::nn::Linear(6, 5), torch::nn::BatchNorm1d(5));
    distribute_module(*net, mesh, {{"0\\.weight", {{"tp", Placement::shard(0)}}}});
    for (const auto& item : net->named_parameters()) {
      EXPECT_TRUE(is_mesh_tensor(item.value())) << item.key();
      EXPECT_EQ(placements_of(item.value())[0].is_shard(), item.key() == "0.weight");
    }
    EXPECT_EQ(local_part(net->named_parameters()["0.weight"]).size(0), world.rank() == 0 ? 3 : 2);
    EXPECT_NE(error_of([&] {
                distribute_module(*net, mesh, {{"nobody", {}}});
              }).find("matches no parameter"),
              std::string::npos);
    const auto too_far = error_of([&] {
      distribute_module(*net, mesh, {{"0\\.bias", {{"tp", Placement::shard(1)}}}});
    });
    EXPECT_NE(too_far.find("0.bias: shard(1)"), std::string::npos) << too_far;
  });
}

}  // namespace
}  // namespace trireme
