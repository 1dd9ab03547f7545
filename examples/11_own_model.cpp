// A model, a loss and samples of one's own with Trainer: what `trireme train` does, from a program.
//
// It teaches Model and Trainer. The model takes two inputs, of which the second passes by the first layers; cut into a
// pipeline, copied over replicas or shared by ZeRO, it learns the same bits.
//
//   ./example_11_own_model                                                            alone
//   trireme launch --nproc-per-node 4 -- ./example_11_own_model --parallel.pp=2       two replicas of two stages
//
// It prints, whatever the layout:
//
//   step  50  loss 0.242294
//   step 100  loss 0.016913
#include <cmath>
#include <cstdio>
#include <iostream>

#include "trireme/torch.h"

namespace {

using namespace trireme;

/// Which of two waves a point is to follow, the second input says.
struct Waves : Model {
  Waves() {
    add_layer("first", torch::nn::Linear(1, 64), Takes::kFirst);
    add_layer(
        "tanh1", [](const torch::Tensor& x) { return torch::tanh(x); }, Takes::kFirst);
    add_layer("second", torch::nn::Linear(64, 64), Takes::kFirst);
    add_layer("join", [](const torch::Tensor& x, const torch::Tensor& which) { return torch::cat({x, which}, 1); });
    add_layer("mix", torch::nn::Linear(65, 64));
    add_layer("tanh2", [](const torch::Tensor& x) { return torch::tanh(x); });
    add_layer("last", torch::nn::Linear(64, 1));
  }
  torch::Tensor loss(const Tensors& outputs, const Tensors& targets) const override {
    return torch::mse_loss(outputs[0], targets[0]);
  }
};

class Points : public Dataset {
 public:
  int64_t size() const override { return 4096; }
  SampleShape shape() const override {
    const Field number{Field::Type::kFloat, {1}};
    return {{number, number}, {number}};
  }

 protected:
  void read_sample(int64_t index, const SampleSlot& slot) const override {
    const double x = static_cast<double>(index % 512) / 256 - 1;
    const bool second = index / 512 % 2 == 1;
    if (const auto at = slot.input<float>(0); !at.empty()) at[0] = static_cast<float>(x);
    if (const auto at = slot.input<float>(1); !at.empty()) at[0] = second ? 1 : 0;
    if (const auto at = slot.target<float>(); !at.empty())
      at[0] = static_cast<float>(second ? std::sin(3 * x) : std::cos(3 * x));
  }
};

void train(World& world, std::vector<std::string> words) {
  words.insert(words.begin(), {"--train.steps=100", "--train.global_batch=256", "--train.micro_batch=32",
                               "--optimizer.lr=0.01", "--train.eval_every=0"});
  const Config config = resolve({.arguments = words, .default_preset = ""});
  Trainer trainer(world, std::make_shared<Waves>(), config, {.train = std::make_shared<Points>()});
  while (trainer.steps_done() < config.train.steps) {
    const StepReport step = trainer.step();
    if (world.rank() == 0 && step.step % 50 == 0) std::printf("step %3ld  loss %.6f\n", step.step, step.loss);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    World world = World::join();
    torch::manual_seed(1);
    train(world, {argv + 1, argv + argc});
    world.leave();
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
}
