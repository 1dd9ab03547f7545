// What a trainer takes from another one's state: positions, counters and the loss scale.
#include <gtest/gtest.h>

#include "numerics/training.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

/// Steps of a trainer, then as many of another that was given its state.
std::vector<double> losses_over(const Config& first, const Config& second, int workers,
                                nlohmann::json* meta = nullptr) {
  std::vector<double> losses;
  std::string text;
  std::vector<torch::Tensor> state;
  run_as_threads(workers, [&](World& world) {
    Trainer trainer(world, build_model(first), first, open_data(data_options_of(first)));
    for (int i = 0; i < 3; ++i) {
      const double loss = trainer.step().loss;
      if (world.rank() == 0) losses.push_back(loss);
    }
    if (world.rank() != 0) return;
    text = trainer.meta();
    for (const auto& item : trainer.state()) state.push_back(item.tensor.clone());
  });
  run_as_threads(1, [&](World& world) {
    Trainer trainer(world, build_model(second), second, open_data(data_options_of(second)));
    const auto own = trainer.state();
    for (size_t i = 0; i < own.size(); ++i) own[i].tensor.copy_(state[i]);
    trainer.restore(text);
    EXPECT_EQ(trainer.steps_done(), 3);
    EXPECT_EQ(trainer.samples_done(), 3 * first.train.global_batch);
    for (int i = 0; i < 3; ++i) losses.push_back(trainer.step().loss);
    if (meta) *meta = nlohmann::json::parse(trainer.meta());
  });
  return losses;
}

TEST(Restore, GoesOnAsIfNothingHadHappened) {
  for (const char* model : {"gpt2", "llama", "mlp"}) {
    const Config config = config_of(model, {"--optimizer.schedule=cosine", "--model.dropout=0.1"});
    EXPECT_EQ(bits_of(losses_over(config, config, 2)), bits_of(train(config, 1, 6).losses)) << model;
  }
}

TEST(Restore, ShortTypesToo) {
  for (const char* type : {"bfloat16", "float16"}) {
    const Config config =
        config_of("gpt2", {std::string("--precision.compute=") + type, "--precision.loss_scale_init=512",
                           "--precision.loss_scale_growth_every=2"});
    nlohmann::json meta;
    EXPECT_EQ(bits_of(losses_over(config, config, 2, &meta)), bits_of(train(config, 1, 6).losses)) << type;
    EXPECT_EQ(meta.at("loss_scale"), std::string(type) == "float16" ? 4096 : 1);
  }
}

TEST(Restore, TheLossScaleBelongsToItsType) {
  const Config whole = config_of("gpt2"),
               half = config_of("gpt2", {"--precision.compute=float16", "--precision.loss_scale_init=512"});
  nlohmann::json meta;
  losses_over(whole, half, 1, &meta);
  EXPECT_EQ(meta.at("loss_scale"), 512);
  losses_over(half, whole, 1, &meta);
  EXPECT_EQ(meta.at("loss_scale"), 1);
}

}  // namespace
}  // namespace trireme
