// Steps that are skipped because float16 overflowed: the optimizer does not count them, wherever it runs and however
// often training is resumed.
#include "numerics/skipped_steps.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(SkippedSteps, TheFirstUpdateIsAdamsFirst) { expect_first_update_is_adams(overflowing()); }

/// A training that is cut after so many steps and goes on in another trainer, whose checkpoint may lack the count.
std::vector<double> losses_resumed(const Config& config, int cut, int steps, bool knows_updates) {
  std::vector<double> losses;
  std::string text;
  std::vector<torch::Tensor> state;
  run_as_threads(1, [&](World& world) {
    Trainer trainer(world, build_model(config), config, open_data(data_options_of(config)));
    while (trainer.steps_done() < cut) losses.push_back(trainer.step().loss);
    auto meta = nlohmann::json::parse(trainer.meta());
    if (!knows_updates) meta.erase("updates");
    text = meta.dump();
    for (const auto& item : trainer.state()) state.push_back(item.tensor.clone());
  });
  run_as_threads(1, [&](World& world) {
    Trainer trainer(world, build_model(config), config, open_data(data_options_of(config)));
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
