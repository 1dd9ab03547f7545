// A loop of one's own around an engine: batches come from anywhere, and any layout trains them.
//
// It teaches Engine: step() takes a batch as tensors, of which every rank uses its own micro-batches.
//
//   ./example_12_engine                                                            alone
//   trireme launch --nproc-per-node 4 -- ./example_12_engine --parallel.zero=3     four replicas that share everything
//
// It prints, whatever the layout:
//
//   step 100  loss 0.4620
//   step 200  loss 0.0538
#include <cstdio>
#include <iostream>

#include "trireme/torch.h"

namespace {

using namespace trireme;

struct Spiral : Model {
  Spiral() {
    add_layer("in", torch::nn::Linear(2, 64));
    add_layer("tanh1", [](const torch::Tensor& x) { return torch::tanh(x); });
    add_layer("middle", torch::nn::Linear(64, 64));
    add_layer("tanh2", [](const torch::Tensor& x) { return torch::tanh(x); });
    add_layer("out", torch::nn::Linear(64, 2));
  }
};

/// Points of two arms of a spiral, and which arm each is of.
Inputs batch_of(int64_t step, int64_t size) {
  torch::Generator generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(step));
  const torch::Tensor arm = torch::randint(0, 2, {size}, generator, torch::kInt64);
  const torch::Tensor turn = torch::rand({size}, generator) * 6, angle = turn + arm * M_PI;
  return {{torch::stack({turn * angle.cos(), turn * angle.sin()}, 1) / 6}, {arm}};
}

void train(World& world, std::vector<std::string> words) {
  words.insert(words.begin(), {"--train.global_batch=128", "--train.micro_batch=16", "--optimizer.lr=0.01"});
  const Config config = resolve({.arguments = words, .default_preset = ""});
  Engine engine(world, std::make_shared<Spiral>(), config);
  for (int64_t step = 1; step <= 200; ++step) {
    const double loss = engine.step(batch_of(step, config.train.global_batch)).loss;
    if (world.rank() == 0 && step % 100 == 0) std::printf("step %ld  loss %.4f\n", step, loss);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    World world = World::join();
    torch::manual_seed(1);  // every rank makes the whole model, and keeps its part
    train(world, {argv + 1, argv + argc});
    world.leave();
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
}
