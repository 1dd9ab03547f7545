// An ordinary libtorch loop on an installed Trireme: the three lines that make it data-parallel.
#include <torch/torch.h>

#include <iostream>

#include "trireme/torch.h"

int main() {
  auto world = trireme::World::join();
  torch::nn::Linear model(4, 1);
  trireme::DataParallel parallel(world.comm(), *model);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  double loss_value = 0;
  for (int step = 0; step < 200; ++step) {
    const auto x = torch::randn({16, 4});
    const auto loss = torch::mse_loss(model->forward(x), x.sum(1, true));
    optimizer.zero_grad();
    loss.backward();
    parallel.synchronize();
    optimizer.step();
    loss_value = loss.item<double>();
  }
  std::cout << (loss_value < 1e-3 ? "the loop has learnt" : "the loop has not learnt") << "\n";
  world.leave();
}
