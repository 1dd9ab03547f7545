// Steps that are skipped because float16 overflowed: the optimizer does not count them, wherever it runs and however
// often training is resumed.
#include <gtest/gtest.h>

#include <cmath>

#include "numerics/server_cases.h"
#include "numerics/training.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

/// Overflows in the first steps, until the scale has been halved often enough.
Config overflowing(const Words& more = {}, int servers = 0) {
  const Words words = {"--precision.compute=float16",
                       fmt::format("--precision.loss_scale_init={}", std::ldexp(1.0, 24)), "--optimizer.kind=adamw",
                       "--optimizer.weight_decay=0"};
  return served("gpt2", words + more, servers);
}

double loss_scale_of(const Trainer& trainer) { return nlohmann::json::parse(trainer.meta()).at("loss_scale"); }

TEST(SkippedSteps, TheFirstUpdateIsAdamsFirst) {
  const Config config = overflowing();
  run_as_threads(1, [&](World& world) {
    Trainer trainer(world, config, open_data(data_options_of(config)));
    double scale = 0;
    StepReport report;
    std::vector<torch::Tensor> before;
    do {
      scale = loss_scale_of(trainer);
      before.clear();
      for (size_t i = 0; i < trainer.part().weights().size(); ++i) before.push_back(trainer.weight(i).clone());
      report = trainer.step();
    } while (report.skipped && trainer.steps_done() < 40);
    ASSERT_FALSE(report.skipped);
    ASSERT_GE(trainer.steps_skipped(), 3) << "nothing has overflowed";
    EXPECT_EQ(trainer.updates_done(), 1);
    for (size_t i = 0; i < before.size(); ++i) {
      // With t = 1 the corrections leave the gradient and its absolute value: torch.optim.AdamW behind a GradScaler.
      const torch::Tensor gradient = trainer.gradient(i).to(torch::kFloat64) / scale;
      const torch::Tensor expected = -report.learning_rate * gradient / (gradient.abs() + config.optimizer.eps);
      const torch::Tensor moved = (trainer.weight(i) - before[i]).to(torch::kFloat64);
      EXPECT_LT((moved - expected).abs().max().item<double>(), 1e-3 * report.learning_rate)
          << trainer.part().weights()[i].name;
    }
  });
}

/// A training that is cut after so many steps and goes on in another trainer, whose checkpoint may lack the count.
std::vector<double> losses_resumed(const Config& config, int cut, int steps, bool knows_updates) {
  std::vector<double> losses;
  std::string text;
  std::vector<torch::Tensor> state;
  run_as_threads(1, [&](World& world) {
    Trainer trainer(world, config, open_data(data_options_of(config)));
    while (trainer.steps_done() < cut) losses.push_back(trainer.step().loss);
    auto meta = nlohmann::json::parse(trainer.meta());
    if (!knows_updates) meta.erase("updates");
    text = meta.dump();
    for (const auto& item : trainer.state()) state.push_back(item.tensor.clone());
  });
  run_as_threads(1, [&](World& world) {
    Trainer trainer(world, config, open_data(data_options_of(config)));
    const auto own = trainer.state();
    for (size_t i = 0; i < own.size(); ++i) own[i].tensor.copy_(state[i]);
    trainer.restore(text);
    while (trainer.steps_done() < steps) losses.push_back(trainer.step().loss);
  });
  return losses;
}

TEST(SkippedSteps, AResumeGoesOnWithTheSameBits) {
  const Config config = overflowing();
  const Outcome straight = train(config, 1, 20);
  ASSERT_GE(straight.steps_skipped, 3);
  ASSERT_LE(straight.steps_skipped, 15) << "hardly a step was made";
  for (const int cut : {2, 17}) {
    for (const bool knows_updates : {true, false}) {
      EXPECT_EQ(bits_of(losses_resumed(config, cut, 20, knows_updates)), bits_of(straight.losses)) << cut;
    }
  }
}

TEST(SkippedSteps, ServersCountAsWorkersDo) {
  const Config servers = overflowing({}, 2);
  const Outcome reduced = train(overflowing(), 2, 20);
  ASSERT_GE(reduced.steps_skipped, 3);
  expect_equal(train(servers, 2, 20), reduced, "servers");
  EXPECT_EQ(bits_of(losses_resumed(overflowing({}, 1), 17, 20, true)), bits_of(reduced.losses));
}

}  // namespace
}  // namespace trireme
