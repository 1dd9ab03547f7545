// An engine of one's own on an installed Trireme: saves, and goes on from what it has saved.
#include <cstdio>
#include <filesystem>

#include "trireme/torch.h"

using namespace trireme;

struct Line : Model {
  Line() { add_layer("line", torch::nn::Linear(1, 1)); }
  torch::Tensor loss(const Tensors& outputs, const Tensors& targets) const override {
    return torch::mse_loss(outputs[0], targets[0]);
  }
};

double train(World& world, const Config& config, const std::filesystem::path& folder, int64_t steps) {
  torch::manual_seed(1);
  Engine engine(world, std::make_shared<Line>(), config);
  EngineCheckpoints checkpoints(world, engine, folder, config.checkpoint);
  checkpoints.load_newest();
  double loss = 0;
  while (engine.steps_done() < steps) {
    const torch::Tensor x = torch::full({8, 1}, 0.1 * static_cast<double>(engine.steps_done()));
    loss = engine.step({{x}, {2 * x}}).loss;
    if (engine.steps_done() % 5 == 0) checkpoints.save();
  }
  checkpoints.finish();
  return loss;
}

int main() {
  World world = World::join();
  const Config config =
      resolve({.arguments = {"--train.global_batch=8", "--train.micro_batch=8"}, .default_preset = ""});
  const double whole = train(world, config, "saved-whole", 10);
  train(world, config, "saved-parts", 5);
  const double resumed = train(world, config, "saved-parts", 10);
  std::printf("resumed with loss %g, without a break %g: %s\n", resumed, whole,
              resumed == whole ? "the same bits" : "OTHER BITS");
  world.leave();
}
