// Mesh tensors: one tensor over several processes. Columns, rows, partial sums, and what moves between them.
//
//   trireme launch --nproc-per-node 2 -- example_03_mesh_tensor
//
// Alone it runs too: a mesh of one rank.
#include <torch/torch.h>

#include <cstdio>

#include "trireme/torch.h"

using namespace trireme;

int main() {
  World world = World::join();
  const auto mesh = DeviceMesh::make(world.comm(), Mesh({{"tp", world.size()}}));
  const auto say = [&](const std::string& text) {
    if (world.rank() == 0) std::printf("%s\n", text.c_str());
  };

  // The same on all ranks: a function of the seed.
  torch::manual_seed(7);
  const auto x = torch::randn({4, 8}), up = torch::randn({8, 12}), down = torch::randn({12, 8});

  // The first weights are cut by columns, the second by rows. Nothing of x is cut.
  const auto a = distribute(up, mesh, {Placement::shard(1)});
  const auto b = distribute(down, mesh, {Placement::shard(0)});
  say("the first weights:\n" + describe_shards(a));

  const auto hidden = torch::relu(torch::mm(distribute(x, mesh, {Placement::replicate()}), a));
  const auto y = torch::mm(hidden, b);
  say("hidden lies as " + placements_of(hidden)[0].to_string() + "\ny lies as " + placements_of(y)[0].to_string());

  // A partial sum is finished when somebody needs its values, here by one all-reduce.
  const auto whole = full(y);
  const auto error = (whole - torch::mm(torch::relu(torch::mm(x, up)), down)).abs().max().item<float>();
  const auto calls = [&](Movement movement) { return std::to_string(mesh->counts().calls_of(movement)); };
  say(calls(Movement::kAllReduce) + " all-reduce, " + calls(Movement::kAllGather) + " all-gather");
  if (world.rank() == 0) std::printf("largest difference to one process: %.1e\n", static_cast<double>(error));
  world.leave();
  return error < 1e-4f ? 0 : 1;
}
