// Redistributions in the background: the bits of the blocking ones, and computation that goes on meanwhile.
#include "trireme/tensor/in_flight.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "trireme/comm/world.h"
#include "trireme/tensor/finish_gradients.h"
#include "trireme/tensor/mesh_tensor.h"

namespace trireme {
namespace {

using Placements = std::vector<Placement>;
const Placement kWhole = Placement::replicate();
const Placement kSummand = Placement::partial();

using Body = std::function<void(World& world, const std::shared_ptr<DeviceMesh>& mesh)>;
void on_mesh(const std::string& text, const Body& body) {
  const Mesh mesh = Mesh::parse(text);
  run_as_threads(mesh.size(), [&](World& world) { body(world, DeviceMesh::make(world.comm(), mesh)); });
}

/// All layouts of a tensor with three dimensions on a mesh.
std::vector<Placements> all_layouts(int num_axes) {
  const Placements each = {kWhole, kSummand, Placement::shard(0), Placement::shard(1), Placement::shard(2, 2)};
  std::vector<Placements> layouts = {{}};
  for (int axis = 0; axis < num_axes; ++axis) {
    std::vector<Placements> longer;
    for (const Placements& begun : layouts) {
      for (const Placement& next : each) {
        longer.push_back(begun);
        longer.back().push_back(next);
      }
    }
    layouts = std::move(longer);
  }
  return layouts;
}

/// Parts of this rank's own: of a partial sum each has other numbers.
at::Tensor somewhere(const std::shared_ptr<DeviceMesh>& mesh, const Placements& placements) {
  const std::vector<int64_t> sizes = {3, 5, 6};
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(mesh->rank()) + 7);
  const MeshLayout* layout = mesh->layout(placements, sizes);
  const auto local = local_sizes(sizes, layout->placements, mesh->axis_sizes(), mesh->coordinates());
  return from_local(torch::randn(local, generator), mesh, layout->placements, sizes);
}

struct Moved {
  at::Tensor result, gradient;
};
Moved moved(const at::Tensor& from, const Placements& to, bool in_background) {
  const auto leaf = from.detach().requires_grad_(true);
  const auto result = in_background ? start_redistribute(leaf, to) : redistribute(leaf, to);
  result.square().sum().backward();
  return {result, leaf.grad()};
}

TEST(InFlight, HasTheBitsOfTheBlockingWay) {
  for (const char* text : {"tp=2", "tp=3", "dp=2,tp=2"}) {
    on_mesh(text, [&](World&, const auto& mesh) {
      for (const Placements& from : all_layouts(mesh->num_axes())) {
        for (const Placements& to : all_layouts(mesh->num_axes())) {
          const auto tensor = somewhere(mesh, from);
          const Moved plain = moved(tensor, to, false), other = moved(tensor, to, true);
          const std::string what = std::string(text) + ": " + mesh->layout(from, {3, 5, 6})->text + " to " +
                                   mesh->layout(to, {3, 5, 6})->text;
          EXPECT_EQ(placements_of(plain.result), placements_of(other.result)) << what;
          EXPECT_TRUE(at::equal(local_part(plain.result), local_part(other.result))) << what;
          EXPECT_TRUE(at::equal(local_part(plain.gradient), local_part(other.gradient))) << what;
        }
      }
      EXPECT_GT(mesh->counts().started, 0);
    });
  }
}

/// Rank 1 begins only when rank 0 says that it has computed something after its own beginning.
TEST(InFlight, ComputationGoesOnMeanwhile) {
  on_mesh("tp=2", [](World& world, const auto& mesh) {
    for (const Placements& to : {Placements{kWhole}, Placements{Placement::shard(0)}}) {
      const auto tensor = somewhere(mesh, {kSummand});
      std::vector<int64_t> token = {0};
      if (world.rank() == 1) world.comm().recv(token, 0);
      const auto sum = start_redistribute(tensor, to);
      token[0] = (torch::ones({8, 8}).mm(torch::ones({8, 8}))).sum().template item<int64_t>();
      if (world.rank() == 0) world.comm().send(token, 1);
      EXPECT_EQ(token[0], 512);
      EXPECT_TRUE(at::equal(local_part(sum), local_part(redistribute(tensor, to))));
    }
    EXPECT_EQ(mesh->counts().started, 2);
  });
}

TEST(InFlight, MayBeLetGo) {
  on_mesh("tp=2", [](World&, const auto& mesh) {
    const auto tensor = distribute(torch::arange(8).to(torch::kFloat), mesh, {Placement::shard(0)});
    for (int i = 0; i < 20; ++i) start_redistribute(tensor, {kWhole});
    const auto copy = start_redistribute(tensor, {kWhole}).detach();  // the original is gone
    EXPECT_TRUE(at::equal(local_part(copy), torch::arange(8).to(torch::kFloat)));
    EXPECT_EQ(mesh->counts().started, 21);
  });
}

/// Two layers with the batch cut over dp, the second weight cut, too.
struct Layers {
  at::Tensor first, second, x;
  explicit Layers(const std::shared_ptr<DeviceMesh>& mesh) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(3);
    const auto make = [&](std::vector<int64_t> sizes, const Placement& placement) {
      return distribute(torch::randn(sizes, generator), mesh, {placement});
    };
    first = make({6, 4}, kWhole).requires_grad_(true);
    second = make({4, 6}, Placement::shard(0)).requires_grad_(true);
    x = make({8, 4}, Placement::shard(0));
  }
  at::Tensor hidden() const { return at::linear(x, first).tanh(); }
  at::Tensor loss() const { return at::linear(hidden(), second).square().sum(); }
};

TEST(FinishGradient, BringsGradientsHomeWithTheSameBits) {
  on_mesh("dp=2", [](World&, const auto& mesh) {
    Layers left(mesh), home(mesh);
    finish_gradient(home.first);
    finish_gradient(home.second);
    EXPECT_TRUE(finishes_gradient(home.first));
    EXPECT_FALSE(finishes_gradient(left.first));
    for (int pass = 0; pass < 2; ++pass) {  // the second adds to the first
      for (const Layers* layers : {&left, &home}) layers->loss().backward();
      for (const auto& [a, b] : {std::pair(left.first, home.first), std::pair(left.second, home.second)}) {
        EXPECT_EQ(placements_of(b.grad()), placements_of(b));
        EXPECT_TRUE(at::equal(local_part(redistribute(a.grad(), placements_of(b))), local_part(b.grad())) || pass == 1);
        EXPECT_TRUE(at::allclose(full(a.grad()), full(b.grad())));
      }
    }
    EXPECT_THROW(finish_gradient(torch::ones({2})), UsageError);
    EXPECT_THROW(finish_gradient(home.first), UsageError);
  });
}

/// Rank 1 begins its backward pass only when rank 0 is through with its own: until then the sum of rank 0 is under way.
TEST(FinishGradient, SumsGoOnBesideTheBackwardPass) {
  on_mesh("dp=2", [](World& world, const auto& mesh) {
    Layers layers(mesh);
    finish_gradient(layers.first);
    const auto loss = layers.hidden().sum();
    std::vector<int64_t> token = {0};
    loss.register_hook([&](const at::Tensor& gradient) {
      if (world.rank() == 1) world.comm().recv(token, 0);
      return gradient;
    });
    const MovementCounts before = mesh->counts();
    loss.backward();
    token[0] = 1;
    if (world.rank() == 0) world.comm().send(token, 1);
    EXPECT_EQ(token[0], 1);
    EXPECT_EQ(mesh->counts().started - before.started, 1);
    EXPECT_EQ(placements_of(layers.first.grad()), placements_of(layers.first));
    EXPECT_GT(local_part(layers.first.grad()).abs().sum().template item<float>(), 0);
  });
}

}  // namespace
}  // namespace trireme
