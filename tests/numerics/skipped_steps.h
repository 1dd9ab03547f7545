// Trainings whose first steps overflow in float16 and are skipped, for tests on CPUs and GPUs.
#pragma once

#include <cmath>

#include "numerics/server_cases.h"
#include "numerics/training.h"
#include "trireme/train/trainer.h"

namespace trireme {

/// Overflows in the first steps, until the scale has been halved often enough.
inline Config overflowing(const Words& more = {}, int servers = 0) {
  const Words words = {"--precision.compute=float16",
                       fmt::format("--precision.loss_scale_init={}", std::ldexp(1.0, 24)), "--optimizer.kind=adamw",
                       "--optimizer.weight_decay=0", "--train.clip=0"};
  return served("gpt2", words + more, servers);
}

inline double loss_scale_of(const Trainer& trainer) { return nlohmann::json::parse(trainer.meta()).at("loss_scale"); }

/// Trains on one worker until a step is not skipped: with t = 1 Adam's corrections leave the gradient and its absolute
/// value, as torch.optim.AdamW behind a GradScaler has it.
inline void expect_first_update_is_adams(const Config& config) {
  run_as_threads(1, [&](World& world) {
    Trainer trainer(world, build_model(config), config, open_data(data_options_of(config)));
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
      const torch::Tensor gradient = trainer.gradient(i).to(torch::kFloat64) / scale;
      const torch::Tensor expected = -report.learning_rate * gradient / (gradient.abs() + config.optimizer.eps);
      const torch::Tensor moved = (trainer.weight(i) - before[i]).to(torch::kFloat64);
      EXPECT_LT((moved - expected).abs().max().item<double>(), 1e-3 * report.learning_rate)
          << trainer.part().weights()[i].name;
    }
  });
}

}  // namespace trireme
