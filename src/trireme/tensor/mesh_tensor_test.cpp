#include "trireme/tensor/mesh_tensor.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "trireme/base/error.h"
#include "trireme/comm/world.h"
#include "trireme/tensor/decision.h"

namespace trireme {
namespace {

using R = Placement;
const Placement kReplicate = Placement::replicate();
const Placement kPartial = Placement::partial();

void on_mesh(const std::string& text, const std::function<void(const std::shared_ptr<DeviceMesh>&)>& body) {
  const Mesh mesh = Mesh::parse(text);
  run_as_threads(mesh.size(), [&](World& world) { body(DeviceMesh::make(world.comm(), mesh)); });
}

TEST(MeshTensor, DistributesAndGathers) {
  const auto whole = torch::arange(42).view({7, 6}).to(torch::kFloat);
  on_mesh("tp=3", [&](const auto& mesh) {
    for (const Placement& placement :
         {Placement::shard(0), Placement::shard(1), Placement::shard(1, 2), kReplicate, Placement::shard(1, 1, 3)}) {
      const auto tensor = distribute(whole, mesh, {placement});
      EXPECT_EQ(tensor.sizes(), whole.sizes());
      EXPECT_TRUE(torch::equal(full(tensor), whole)) << to_string(tensor);
      for (const Placement& to : {Placement::shard(0), Placement::shard(1), kReplicate, Placement::shard(1, 3)}) {
        const auto other = redistribute(tensor, {to});
        EXPECT_TRUE(torch::equal(full(other), whole)) << placement.to_string() << " to " << to.to_string();
      }
    }
  });
}

TEST(MeshTensor, TwoAxesMayCutOneDimension) {
  const auto whole = torch::arange(60).view({10, 6}).to(torch::kFloat);
  on_mesh("dp=2,tp=2", [&](const auto& mesh) {
    const std::vector<Placement> all = {kReplicate, Placement::shard(0), Placement::shard(1)};
    for (const Placement& a : all) {
      for (const Placement& b : all) {
        const auto tensor = distribute(whole, mesh, {a, b});
        EXPECT_TRUE(torch::equal(full(tensor), whole));
        for (const Placement& c : all) {
          for (const Placement& d : all) EXPECT_TRUE(torch::equal(full(redistribute(tensor, {c, d})), whole));
        }
      }
    }
  });
}

TEST(MeshTensor, RandomNumbersAreThoseOfOneProcessWithThisSeed) {
  const auto x = torch::ones({6, 8});
  const auto draw = [](const torch::Tensor& t) {
    return full(torch::dropout(t, 0.5, true) + torch::rand_like(t) + torch::dropout(t, 0.25, true));
  };
  const auto drawn = [&](const char* text, uint64_t seed) {
    torch::manual_seed(seed);
    torch::Tensor result;
    on_mesh(text, [&](const auto& mesh) {
      std::vector<Placement> placements(static_cast<size_t>(mesh->num_axes()), Placement::shard(0));
      const torch::Tensor whole = draw(distribute(x, mesh, placements));
      if (mesh->rank() == 0) result = whole;
    });
    // What plain tensors draw next is in step.
    return std::pair(result, torch::rand({3}));
  };
  torch::manual_seed(1);
  const torch::Tensor plain = draw(x), next = torch::rand({3});
  for (const char* text : {"tp=1", "tp=2", "tp=3", "dp=2,tp=2"}) {
    const auto [whole, after] = drawn(text, 1);
    EXPECT_TRUE(torch::equal(whole, plain)) << text;
    EXPECT_TRUE(torch::equal(after, next)) << text;
    EXPECT_FALSE(torch::equal(drawn(text, 2).first, plain)) << text;
  }
}

TEST(MeshTensor, AMeshWithASeedOfItsOwnRepeatsAndLeavesTorchAlone) {
  const auto x = torch::ones({40});
  const auto drawn = [&] {
    torch::Tensor result;
    on_mesh("tp=2", [&](const auto& mesh) {
      const auto t = distribute(x, mesh, {Placement::shard(0)});
      mesh->seed(7);
      const auto first = full(torch::dropout(t, 0.5, true));
      EXPECT_FALSE(torch::equal(first, full(torch::dropout(t, 0.5, true))));
      mesh->seed(7);
      EXPECT_TRUE(torch::equal(first, full(torch::dropout(t, 0.5, true))));
      if (mesh->rank() == 0) result = first;
    });
    return result;
  };
  torch::manual_seed(1);
  const auto untouched = torch::rand({3});
  torch::manual_seed(1);
  const auto first = drawn();
  EXPECT_TRUE(torch::equal(torch::rand({3}), untouched));
  EXPECT_TRUE(torch::equal(first, drawn()));
}

TEST(MeshTensor, ModulesAndOptimizersRunUnchanged) {
  torch::manual_seed(3);  // Adam makes much of gradients that are nearly 0: not every input has none
  const auto x = torch::randn({6, 8});
  const auto run = [&](torch::nn::Linear up, torch::nn::Linear down, const torch::Tensor& input) {
    std::vector<torch::Tensor> parameters = {up->weight, up->bias, down->weight, down->bias};
    torch::optim::AdamW optimizer(parameters, torch::optim::AdamWOptions(0.1));
    std::vector<torch::Tensor> results;
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      const auto loss = down(torch::gelu(up(input))).pow(2).mean();
      loss.backward();
      optimizer.step();
      results.push_back(full(loss.detach()));
    }
    for (const auto& parameter : parameters) results.push_back(full(parameter.detach()));
    return results;
  };
  torch::nn::Linear up(8, 16), down(16, 8);
  const auto up_weight = up->weight.detach().clone(), up_bias = up->bias.detach().clone();
  const auto down_weight = down->weight.detach().clone(), down_bias = down->bias.detach().clone();
  const auto expected = run(up, down, x);
  for (const char* text : {"tp=1", "tp=2", "tp=3", "dp=2,tp=2"}) {
    on_mesh(text, [&](const auto& mesh) {
      const auto on = [&](const Placement& placement) {
        std::vector<Placement> all(static_cast<size_t>(mesh->num_axes()), kReplicate);
        all.back() = placement;
        return all;
      };
      torch::nn::Linear mine_up(8, 16), mine_down(16, 8);
      mine_up->weight.set_data(distribute(up_weight, mesh, on(Placement::shard(0))));
      mine_up->bias.set_data(distribute(up_bias, mesh, on(Placement::shard(0))));
      mine_down->weight.set_data(distribute(down_weight, mesh, on(Placement::shard(1))));
      mine_down->bias.set_data(distribute(down_bias, mesh, on(kReplicate)));
      auto input_at = on(kReplicate);
      if (mesh->num_axes() == 2) input_at[0] = Placement::shard(0);
      const auto results = run(mine_up, mine_down, distribute(x, mesh, input_at));
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(torch::allclose(results[i], expected[i], 1e-5, 1e-6)) << text << " result " << i;
      }
      if (std::string(text) == "tp=2") {
        EXPECT_EQ(placements_of(mine_up->weight.grad())[0], Placement::shard(0));
        EXPECT_EQ(mesh->counts().calls_of(Movement::kAllGather), 0 + 3);  // full() of three cut parameters
      }
    });
  }
}

/// A view that is changed in place: autograd goes back to its base by sizes, strides and offset.
torch::Tensor gradient_through_view(torch::Tensor w) {
  w.set_requires_grad(true);
  auto b = w * 2;
  b.slice(0, 1, 3).mul_(3);
  (b * b).sum().backward();
  return full(w.grad());
}

TEST(MeshTensor, InPlaceOnAViewIsRightOrRefused) {
  const auto values = torch::arange(12).view({4, 3}).to(torch::kFloat);
  const auto expected = gradient_through_view(values.clone());
  on_mesh("tp=2", [&](const auto& mesh) {
    EXPECT_TRUE(torch::equal(gradient_through_view(distribute(values, mesh, {kReplicate})), expected));
    EXPECT_THROW(gradient_through_view(distribute(values, mesh, {Placement::shard(1)})), Error);
  });
}

TEST(MeshTensor, RefusesWhatItCannotDo) {
  on_mesh("tp=2", [&](const auto& mesh) {
    const auto tensor = distribute(torch::ones({4, 4}), mesh, {Placement::shard(0)});
    EXPECT_THROW(tensor.data_ptr(), std::exception);
    EXPECT_THROW(distribute(torch::ones({4}), mesh, {Placement::shard(1)}), UsageError);
    EXPECT_THROW(distribute(torch::ones({4}), mesh, {kReplicate, kReplicate}), UsageError);
    EXPECT_THROW(placements_of(torch::ones({1})), UsageError);
    auto sum = redistribute(distribute(torch::ones({4}), mesh, {kReplicate}), {kPartial});
    EXPECT_THROW(sum.add_(1), Error);
    const auto resized = [&] {
      try {
        torch::Tensor(tensor).resize_({2, 4});
      } catch (const Error& error) {
        return std::string(error.what());
      }
      return std::string();
    };
    EXPECT_NE(resized().find("would change the sizes"), std::string::npos) << resized();
    auto other = DeviceMesh::make(mesh->axis(0), Mesh::parse("tp=2"));
    EXPECT_THROW(tensor + distribute(torch::ones({4, 4}), other, {kReplicate}), Error);
  });
}

}  // namespace
}  // namespace trireme
