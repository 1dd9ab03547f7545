// Two trainings of different configs at once in one process, on rank threads: each as if it were alone.
#include <gtest/gtest.h>

#include <thread>

#include "numerics/training.h"

namespace trireme {
namespace {

TEST(TwoTrainers, DoNotDisturbEachOther) {
  const Config configs[] = {
      config_of("gpt2", {"--model.dropout=0.2", "--precision.compute=bfloat16", "--train.recompute=full"}),
      config_of("mlp", {"--model.dropout=0.4", "--parallel.pp=2", "--parallel.dp=1", "--train.seed=7"}),
      config_of("resnet", {"--parallel.zero=2", "--train.clip=0.5"})};
  constexpr int kWorkers = 2, kSteps = 4;
  std::vector<Outcome> alone, together(std::size(configs));
  for (const Config& config : configs) alone.push_back(train(config, kWorkers, kSteps, /*evaluates=*/true));
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < std::size(configs); ++i) {
      threads.emplace_back([&, i] { together[i] = train(configs[i], kWorkers, kSteps, /*evaluates=*/true); });
    }
  }
  for (size_t i = 0; i < std::size(configs); ++i) {
    expect_equal(alone[i], together[i], fmt::format("training {}", i));
    EXPECT_EQ(alone[i].evaluation.loss, together[i].evaluation.loss);
  }
}

}  // namespace
}  // namespace trireme
