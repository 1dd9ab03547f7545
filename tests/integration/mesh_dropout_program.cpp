// A rank of a tensor-parallel network with dropout: prints its losses.
//
//   mesh_dropout_program SEED [SEED_OF_OTHERS]     with torch::manual_seed(SEED), after the mesh is made; other ranks
//                                                  than 0 may take another seed once the weights are made
#include <fmt/format.h>
#include <torch/torch.h>

#include <cstdlib>

#include "trireme/comm/world.h"
#include "trireme/parallel/tensor/layout_rules.h"

int main(int argc, char** argv) {
  using namespace trireme;
  const auto seed = static_cast<uint64_t>(argc > 1 ? std::atoi(argv[1]) : 1);
  World world = World::join();
  const auto mesh = DeviceMesh::make(world.comm(), Mesh({{"tp", world.size()}}));
  torch::manual_seed(seed);
  torch::nn::Sequential net(torch::nn::Linear(8, 32), torch::nn::ReLU(), torch::nn::Dropout(0.5),
                            torch::nn::Linear(32, 4));
  const auto inputs = torch::randn({16, 8}), targets = torch::randn({16, 4});
  if (argc > 2 && world.rank() > 0) torch::manual_seed(static_cast<uint64_t>(std::atoi(argv[2])));
  distribute_module(
      *net, mesh,
      {{"0\\.(weight|bias)", {{"tp", Placement::shard(0)}}}, {"3\\.weight", {{"tp", Placement::shard(1)}}}});
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1));
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    const auto loss = torch::mse_loss(net->forward(inputs), targets);
    loss.backward();
    optimizer.step();
    const auto value = full(loss.detach()).item<float>();
    if (world.rank() == 0) fmt::print("{:.4f}\n", value);
  }
  world.leave();
  return 0;
}
