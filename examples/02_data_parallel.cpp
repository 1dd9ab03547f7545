// An ordinary libtorch training loop, made data parallel by three lines (marked ←).
//
// It teaches DataParallel: all ranks begin with rank 0's weights, each computes its part of the batch, gradients are
// averaged while backward() still runs, and all ranks make the same step.
//
//   ./example_02_data_parallel                                          alone
//   trireme launch --nproc-per-node 2 -- ./example_02_data_parallel     two ranks, each half of every batch
//
// Rank 0 prints how a small network learns which points lie inside a ring; alone:
//
//   step   0  loss 0.694
//   step 100  loss 0.113
//   step 200  loss 0.079
//   step 300  loss 0.060
//   1 rank: 95.9 % of 4096 new points right
//
// Two ranks print the same, but for the last digits: a sum of two halves is rounded elsewhere than one sum. Where the
// numbers must be equal bit for bit, split the batch into the same micro-batches whatever the number of ranks, and set
// MKL_CBWR=AUTO,STRICT (docs/data_parallelism.md).
#include <cstdio>
#include <iostream>

#include "trireme/torch.h"

namespace {

constexpr int kSteps = 400, kBatch = 256;

torch::Tensor inside_ring(const torch::Tensor& points) {
  const torch::Tensor radius = points.norm(2, 1, true);
  return torch::logical_and(radius > 0.4, radius < 0.9).to(torch::kFloat32);
}

void train(trireme::World& world) {
  torch::manual_seed(7);
  torch::nn::Sequential network(torch::nn::Linear(2, 64), torch::nn::ReLU(), torch::nn::Linear(64, 64),
                                torch::nn::ReLU(), torch::nn::Linear(64, 1));
  torch::optim::Adam optimizer(network->parameters(), 0.01);
  trireme::DataParallel ddp(world.comm(), *network);  // ← after the model is built

  for (int step = 0; step < kSteps; ++step) {
    // All ranks draw the whole batch from the same seed; a real program would read only its own part.
    const torch::Tensor batch = torch::rand({kBatch, 2}) * 2 - 1;
    const torch::Tensor points = batch.tensor_split(world.size())[world.rank()];  // ← this rank's part
    optimizer.zero_grad();
    torch::Tensor loss = torch::binary_cross_entropy_with_logits(network->forward(points), inside_ring(points));
    loss.backward();
    ddp.synchronize();  // ← between backward() and step()
    optimizer.step();

    if (step % 100 != 0) continue;
    const double mean = trireme::all_reduce(world.comm(), loss.detach(), trireme::ReduceOp::kAverage).item<double>();
    if (world.rank() == 0) printf("step %3d  loss %.3f\n", step, mean);
  }

  const torch::NoGradGuard no_grad;
  const torch::Tensor points = torch::rand({4096, 2}) * 2 - 1;
  const torch::Tensor right = (network->forward(points) > 0).to(torch::kFloat32) == inside_ring(points);
  const double fraction = right.to(torch::kFloat64).mean().item<double>();
  if (world.rank() == 0) {
    printf("%d rank%s: %.1f %% of 4096 new points right\n", world.size(), world.size() == 1 ? "" : "s", fraction * 100);
  }
  if (fraction < 0.9) throw trireme::Error("the network has not learnt the ring");
}

}  // namespace

int main() {
  try {
    auto world = trireme::World::join();
    train(world);
    world.leave();
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
}
