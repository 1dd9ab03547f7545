// Trains a module of one's own on all workers, in the layout that the planner finds: one line, whatever the module.
//
// It teaches parallelize(): nothing in the module or the loop knows of workers, layouts or communication.
//
//   ./example_10_parallelize                             alone
//   trireme launch --nproc-per-node 4 -- ./example_10_parallelize PLAN [FILE]
//
//   PLAN  "auto" or nothing   as the planner likes
//         "mesh 2x2"          operators cut over 2 x 2 workers
//         "pipeline 2x2x4"    2 stages, 2 replicas, 4 micro-batches
//         "stages 1+3 in 4"   2 stages, the second on 3 workers, 4 micro-batches
//         plan.json           a plan that was kept
//   FILE  keeps the plan
//
// It prints the plan with what is predicted for it, how the parameters lie, and how the network learns to sort.
#include <torch/torch.h>

#include <cstdio>

#include "trireme/torch.h"

/// A wide network with a skip connection: no sequence of layers.
struct SorterImpl : torch::nn::Module {
  SorterImpl() {
    register_module("first", first);
    register_module("up", up);
    register_module("down", down);
    register_module("norm", norm);
    register_module("last", last);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor y = torch::gelu(first(x));
    return last(norm(y + down(torch::gelu(up(y))))) + x;
  }
  torch::nn::Linear first{8, 256}, up{256, 1024}, down{1024, 256}, last{256, 8};
  torch::nn::LayerNorm norm{torch::nn::LayerNormOptions({256})};
};
TORCH_MODULE(Sorter);

int main(int argc, char** argv) {
  try {
    at::set_num_threads(1);  // workers share the machine's cores
    trireme::World world = trireme::World::join();
    torch::manual_seed(1);  // every worker draws the same batches
    Sorter model;
    torch::optim::AdamW optimizer(model->parameters(), 2e-3);

    auto training = trireme::parallelize(
        world, model, [](const auto& output, const auto& target) { return torch::mse_loss(output, target); }, optimizer,
        {.plan = argc > 1 ? argv[1] : "auto", .write_plan = argc > 2 ? argv[2] : ""});

    double loss = 1;
    for (int step = 0; step <= 150; ++step) {
      const torch::Tensor numbers = torch::rand({64, 8});
      loss = training->step(numbers, std::get<0>(numbers.sort(1)));
      if (world.rank() == 0 && step == 0) std::printf("%s", training->describe().c_str());
      if (world.rank() == 0 && step % 50 == 0) std::printf("step %3d  loss %.4f\n", step, loss);
    }
    training->gather();  // the module is whole again: evaluate it, save it
    const torch::NoGradGuard no_grad;
    if (world.rank() == 0) {
      const torch::Tensor numbers = torch::tensor({{0.7, 0.1, 0.9, 0.4, 0.2, 0.8, 0.6, 0.3}}, torch::kFloat32);
      const torch::Tensor sorted = model(numbers)[0];
      for (int i = 0; i < 8; ++i) std::printf("%.2f ", sorted[i].item<double>());
      std::printf("\n");
    }
    world.leave();
    return loss < 0.02 ? 0 : 1;
  } catch (const trireme::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
