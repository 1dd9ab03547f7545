// Tensor parallelism for a model of one's own: unchanged torch::nn modules, two rules, torch::optim.
//
//   trireme launch --nproc-per-node 2 -- example_04_tensor_parallel
#include <torch/torch.h>

#include <cstdio>

#include "trireme/torch.h"

using namespace trireme;

/// A small classifier; it knows nothing of ranks.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("up", up);
    register_module("down", down);
    register_module("norm", norm);
    register_module("head", head);
  }
  torch::Tensor forward(torch::Tensor x) { return head(norm(x + down(torch::gelu(up(x))))); }

  torch::nn::Linear up{16, 64}, down{64, 16}, head{16, 4};
  torch::nn::LayerNorm norm{torch::nn::LayerNormOptions({16})};
};
TORCH_MODULE(Net);

int main() {
  World world = World::join();
  const auto mesh = DeviceMesh::make(world.comm(), Mesh({{"tp", world.size()}}));
  torch::manual_seed(1);  // every rank begins with the same weights
  Net net;
  distribute_module(*net, mesh,
                    {{"up\\.(weight|bias)", {{"tp", Placement::shard(0)}}},  // its outputs are cut
                     {"down\\.weight", {{"tp", Placement::shard(1)}}}});     // its inputs are

  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2));
  const auto inputs = torch::randn({256, 16});
  const auto targets = inputs.narrow(1, 0, 4).argmax(1);
  double first = 0, last = 0;
  for (int step = 0; step < 60; ++step) {
    optimizer.zero_grad();
    const auto loss = torch::nn::functional::cross_entropy(net(inputs), targets);
    loss.backward();
    optimizer.step();
    last = full(loss.detach()).item<double>();
    if (step == 0) first = last;
    if (step % 20 == 0 && world.rank() == 0) std::printf("step %2d  loss %.4f\n", step, last);
  }
  const long here = local_part(net->up->weight).numel(), all = net->up->weight.numel();
  if (world.rank() == 0) std::printf("loss %.4f; each rank holds %ld of %ld weights of `up`\n", last, here, all);
  world.leave();
  return last < first / 2 ? 0 : 1;
}
