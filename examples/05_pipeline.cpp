// Pipeline parallelism for an ordinary torch::nn::Sequential: each rank trains some of its layers.
//
// It teaches Pipeline: the model is cut into stages, the batch into micro-batches, and a schedule says who computes
// what when. Every schedule gives the same weights, bit for bit.
//
//   ./example_05_pipeline                                              alone
//   trireme launch --nproc-per-node 3 -- ./example_05_pipeline zb-h1   three stages, zero-bubble schedule
//   trireme launch --nproc-per-node 4 -- ./example_05_pipeline 1f1b 2  two replicas of two stages
//
// It prints how a network learns which points lie inside a ring; on three ranks:
//
//   zb-h1: 1 x 3 ranks hold layers 0-2,3-4,5-8; rank 0 keeps at most 3 activations
//   step   0  loss 0.6916
//   step 100  loss 0.1393
//   step 200  loss 0.1007
//   step 299  loss 0.0862
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "trireme/torch.h"

namespace {

constexpr int kSteps = 300, kBatch = 256;

torch::Tensor inside_ring(const torch::Tensor& points) {
  const torch::Tensor radius = points.norm(2, 1, true);
  return torch::logical_and(radius > 0.4, radius < 0.9).to(torch::kFloat32);
}

void train(trireme::World& world, const std::string& schedule, int num_replicas) {
  at::set_num_threads(1);  // ranks share the machine's cores, and these layers are small
  torch::manual_seed(7);   // every rank makes the whole model, and trains its own layers of it
  using namespace torch::nn;
  Sequential model(Linear(2, 64), ReLU(), Linear(64, 64), ReLU(), Linear(64, 64), ReLU(), Linear(64, 64), ReLU(),
                   Linear(64, 1));
  trireme::Pipeline pipeline(
      world.comm(), model, {.schedule = schedule, .num_micro_batches = 8 / num_replicas, .num_replicas = num_replicas});
  torch::optim::Adam optimizer(pipeline.parameters(), 0.003);
  if (world.rank() == 0) {
    std::printf("%s: %d x %d ranks hold layers %s; rank 0 keeps at most %ld activations\n", schedule.c_str(),
                num_replicas, world.size() / num_replicas, trireme::partition_to_text(pipeline.partition()).c_str(),
                static_cast<long>(pipeline.report().ranks[0].activations));
  }
  double loss = 0;
  for (int step = 0; step < kSteps; ++step) {
    const torch::Tensor batch = torch::rand({kBatch, 2}) * 2 - 1;  // the same on all ranks
    const torch::Tensor points = batch.chunk(num_replicas)[static_cast<size_t>(pipeline.replica())];
    loss = pipeline.step(points, inside_ring(points), [](const torch::Tensor& output, const torch::Tensor& target) {
      return torch::binary_cross_entropy_with_logits(output, target);
    });
    optimizer.step();
    if (world.rank() == 0 && (step % 100 == 0 || step == kSteps - 1)) std::printf("step %3d  loss %.4f\n", step, loss);
  }
  if (loss > 0.3) throw trireme::Error("the network has not learnt the ring");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    auto world = trireme::World::join();
    train(world, argc > 1 ? argv[1] : "1f1b", argc > 2 ? std::atoi(argv[2]) : 1);
    world.leave();
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
}
