#include "trireme/measure/train/cases.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::measure {
namespace {

TrainPlan plan(TrainOptions flags) {
  flags.config = with_bench_defaults(flags);
  return plan_trainings(flags);
}

TrainOptions on_gpu(std::vector<std::string> words = {}) {
  TrainOptions flags;
  flags.config.words = std::move(words);
  flags.config.words.insert(flags.config.words.begin(), "--train.device=cuda");
  return flags;
}

TEST(TrainPlan, OnAGpuIsGpt2SmallInTwoModes) {
  const TrainPlan made = plan(on_gpu());
  ASSERT_EQ(made.cases.size(), 2u);
  EXPECT_EQ(made.cases[0].name, "deterministic");
  EXPECT_EQ(made.cases[1].name, "fastest");
  EXPECT_EQ(made.main, 0u);
  for (const TrainCase& each : made.cases) {
    EXPECT_EQ(each.num_workers, 1);
    EXPECT_EQ(each.samples_per_step, 64);
    EXPECT_EQ(each.config.model.layers, 12);
    EXPECT_EQ(each.config.model.vocab, 50304);
    EXPECT_EQ(each.config.train.micro_batch, 64);
    EXPECT_EQ(each.config.train.leaves, 1);
    EXPECT_EQ(each.config.train.clip, 1);
    EXPECT_EQ(each.config.precision.compute, NumberType::kBfloat16);
    EXPECT_EQ(each.config.train.steps, 25);
  }
  EXPECT_TRUE(made.cases[0].config.train.deterministic);
  EXPECT_FALSE(made.cases[1].config.train.deterministic);
}

TEST(TrainPlan, OnAGpuWhatWasAskedForStays) {
  const TrainPlan made = plan(on_gpu({"--train.global_batch=32", "--train.deterministic=false"}));
  ASSERT_EQ(made.cases.size(), 1u);
  EXPECT_EQ(made.cases[0].name, "fastest");
  EXPECT_EQ(made.cases[0].samples_per_step, 32);
  EXPECT_EQ(made.cases[0].config.train.micro_batch, 32);
  TrainOptions named = on_gpu({"--train.micro_batch=8", "--train.global_batch=16"});
  named.config.model = "gpt2-1.5b";
  const TrainPlan large = plan(named);
  EXPECT_EQ(large.cases[0].config.model.vocab, 50257);
  EXPECT_EQ(large.cases[0].config.precision.compute, NumberType::kFloat32);
  EXPECT_EQ(large.cases[0].num_workers, 1);
}

TEST(TrainPlan, OnAGpuSeveralWorkersShareTheBatch) {
  TrainOptions flags = on_gpu();
  flags.config.num_processes = 2;
  const TrainPlan made = plan(flags);
  ASSERT_EQ(made.cases.size(), 3u);
  EXPECT_EQ(made.cases[0].name, "dp=1, batch 32");
  EXPECT_EQ(made.cases[1].name, "dp=2, deterministic");
  EXPECT_EQ(made.main, 1u);
  EXPECT_EQ(made.cases[1].config.train.micro_batch, 32);
  TrainOptions layouts = on_gpu();
  layouts.layouts = "dp=1;dp=4";
  const TrainPlan both = plan(layouts);
  ASSERT_EQ(both.cases.size(), 2u);
  EXPECT_EQ(both.cases[1].num_workers, 4);
  EXPECT_EQ(both.cases[0].config.train.leaves, 4);  // so that both have the same bits
  EXPECT_EQ(both.main, 1u);
}

TEST(TrainPlan, OnACpuIsAsItWas) {
  TrainOptions flags;
  flags.config.num_processes = 2;
  const TrainPlan made = plan(flags);
  ASSERT_EQ(made.cases.size(), 2u);
  EXPECT_EQ(made.cases[made.main].name, "dp=2");
  EXPECT_EQ(made.cases[0].config.model.hidden, 256);
  EXPECT_EQ(made.cases[0].config.model.preset, "gpt2-bench");
}

TEST(NumRandomTokens, AreForGpusWithoutDataOfTheirOwn) {
  const auto config_of = [](std::vector<std::string> words) {
    TrainOptions flags = on_gpu(std::move(words));
    return resolve(with_bench_defaults(flags).sources());
  };
  EXPECT_EQ(num_random_tokens(config_of({}), 25), 27 * 64 * 1024 + 1);
  EXPECT_EQ(num_random_tokens(config_of({}), 1'000'000), (1 << 25) + 1);
  EXPECT_EQ(num_random_tokens(config_of({"--data.path=some.txt"}), 25), 0);
  EXPECT_EQ(num_random_tokens(config_of({"--data.kind=generated"}), 25), 0);
  EXPECT_EQ(num_random_tokens(config_of({"--model.preset=resnet18"}), 25), 0);
  EXPECT_EQ(num_random_tokens(resolve(with_bench_defaults({}).sources()), 25), 0);
}

}  // namespace
}  // namespace trireme::measure
