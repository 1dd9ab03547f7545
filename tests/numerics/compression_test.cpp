// Trainings whose gradients travel compressed: all replicas stay alike, what travels is as long as the formula says,
// and methods that round little end near the dense training.
#include "trireme/config/compression.h"

#include <gtest/gtest.h>

#include <map>

#include "numerics/training.h"
#include "trireme/base/error.h"
#include "trireme/compress/method.h"
#include "trireme/train/compression.h"

namespace trireme {
namespace {

Config compressed(const std::string& method, const Words& more = {}) {
  Words words = {"--compression.method=" + method, "--optimizer.warmup_steps=0"};
  words.insert(words.end(), more.begin(), more.end());
  return config_of("gpt2", words);
}

/// Methods that compress gradients; 1-bit Adam, which sends momenta, has tests of its own.
std::vector<std::string> gradient_methods() {
  std::vector<std::string> methods;
  for (const std::string_view name : all_names<Method>()) {
    const Method method = named<Method>(name).value();
    if (method != Method::kNone && method != Method::kOneBitAdam) methods.emplace_back(name);
  }
  return methods;
}

/// Keys of an optimizer that goes with the method.
Words optimizer_for(const std::string& method, const char* adam_lr, const char* sgd_lr) {
  if (method != "dgc") return {std::string("--optimizer.lr=") + adam_lr};
  return {"--optimizer.kind=sgd", "--optimizer.momentum=0", std::string("--optimizer.lr=") + sgd_lr};
}

TEST(Compression, EveryMethodOfTheLibraryHasItsName) {
  for (const std::string_view name : all_names<Method>()) {
    EXPECT_EQ(compression_options(compressed(std::string(name))).method, named<Method>(name));
  }
}

TEST(Compression, ReplicasStayAlike) {
  // train() compares all ranks.
  for (const std::string& method : gradient_methods()) {
    SCOPED_TRACE(method);
    const Config config = compressed(method, optimizer_for(method, "0.01", "0.01"));
    for (const int workers : {2, 3}) {
      for (const double loss : train(config, workers, 3).losses) EXPECT_TRUE(std::isfinite(loss));
    }
  }
}

TEST(Compression, RoundingLittleEndsNearTheDenseTraining) {
  const Outcome dense = train(compressed("none"), 2, 8);
  for (const auto& [method, bound] : {std::pair{"float16", 1e-4}, {"bfloat16", 2e-3}, {"int8", 5e-3}}) {
    const Outcome outcome = train(compressed(method), 2, 8);
    EXPECT_NEAR(outcome.losses.back(), dense.losses.back(), bound * dense.losses.back()) << method;
    EXPECT_GT(largest_difference(outcome, dense), 0) << method;  // losses may round to the same
  }
}

TEST(Compression, EveryMethodLearns) {
  constexpr int kSteps = 16;
  const auto fall = [&](const std::string& method, Words words) {
    words.insert(words.end(), {"--train.leaves=4", "--train.global_batch=4", fmt::format("--train.steps={}", kSteps)});
    return fall_of(train(compressed(method, words), 2, kSteps));
  };
  const auto keys_for = [](const std::string& method) { return optimizer_for(method, "0.005", "0.3"); };
  const double dense = fall("none", keys_for("none")), dense_sgd = fall("none", keys_for("dgc"));
  ASSERT_GT(dense, 0.15);
  ASSERT_GT(dense_sgd, 0.05);
  // The share of the dense fall that is reached at least.
  const std::map<std::string, double> least = {{"float16", 0.98}, {"bfloat16", 0.95}, {"int8", 0.9},
                                               {"qsgd", 0.8},     {"powersgd", 0.5},  {"terngrad", 0.4},
                                               {"sign", 0.4},     {"topk", 0.2},      {"dgc", 0.2}};
  for (const std::string& method : gradient_methods()) {
    ASSERT_TRUE(least.contains(method)) << method << " needs a share";
    EXPECT_GT(fall(method, keys_for(method)), least.at(method) * (method == "dgc" ? dense_sgd : dense)) << method;
  }
}

TEST(Compression, BytesAreThoseOfTheFormula) {
  const Words direct = {"--train.leaves=2"};  // one sum a rank
  const Outcome dense = train(compressed("none", direct), 2, 2);
  // A rank sends half of the packed group, and the sum of its half: together the group once.
  for (const auto& [method, bits] : {std::pair{"int8", 8.06}, {"sign", 1.06}, {"float16", 16.06}}) {
    const double ratio = static_cast<double>(train(compressed(method, direct), 2, 2).bytes_reduced) /
                         static_cast<double>(dense.bytes_reduced);
    EXPECT_NEAR(ratio, bits / 32, 0.05 * bits / 32 + 0.01) << method;
  }
}

Config one_bit(int64_t warmup, const Words& more = {}) {
  Words words = {"--train.clip=0", fmt::format("--compression.warmup_steps={}", warmup), "--train.leaves=4"};
  words.insert(words.end(), more.begin(), more.end());
  return compressed("onebit_adam", words);
}

TEST(OneBitAdamTraining, TheWarmUpIsThePlainTraining) {
  for (const int workers : {2, 4}) {
    expect_equal(train(one_bit(3), workers, 3), train(compressed("none", {"--train.clip=0", "--train.leaves=4"}), 2, 3),
                 "warm-up");
  }
}

int64_t num_weights(const Outcome& outcome) {
  int64_t count = 0;
  for (const auto& [name, tensor] : outcome.state) count += name.starts_with("adam.") ? 0 : tensor.numel();
  return count;
}

TEST(OneBitAdamTraining, LearnsWithABitAValue) {
  constexpr int kWarm = 15, kSteps = 60;
  const Words slower = {"--optimizer.lr=0.002"};
  const Outcome begun = train(one_bit(kWarm, slower), 2, kWarm), plain = train(one_bit(kSteps, slower), 2, kSteps),
                whole = train(one_bit(kWarm, slower), 2, kSteps);
  const double learnt = begun.losses.back() - plain.losses.back();
  EXPECT_GT(learnt, 0.3);  // or the bound below says nothing
  EXPECT_LT(whole.losses.back(), plain.losses.back() + 0.25 * learnt);
  // A rank sends half of the packed moves and the sum of its half; the rest are a few values.
  const double bits = 8 * static_cast<double>(whole.bytes_reduced - begun.bytes_reduced) / (kSteps - kWarm) /
                      static_cast<double>(num_weights(whole));
  EXPECT_NEAR(bits, 1.06, 0.1);
}

TEST(OneBitAdamTraining, ReplicasStayAlike) {
  for (const double loss : train(one_bit(2), 4, 6).losses) EXPECT_TRUE(std::isfinite(loss));
  const Words pipeline = {"--parallel.pp=2", "--parallel.dp=2"}, untied = {"--model.tied=false"};
  for (const double loss : train(one_bit(2, pipeline), 4, 5).losses) EXPECT_TRUE(std::isfinite(loss));
  for (const double loss : train(one_bit(2, untied), 2, 5).losses) EXPECT_TRUE(std::isfinite(loss));
  for (const double loss : train(one_bit(2, {"--optimizer.kind=adam"}), 2, 5).losses) EXPECT_TRUE(std::isfinite(loss));
}

TEST(Compression, WithPipelinesAndTensorParallelism) {
  const Words pipeline = {"--parallel.pp=2", "--parallel.dp=2"}, tensor = {"--parallel.tp=2", "--parallel.dp=2"};
  for (const char* method : {"topk", "qsgd", "powersgd"}) {
    for (const double loss : train(compressed(method, pipeline), 4, 3).losses) EXPECT_TRUE(std::isfinite(loss));
    EXPECT_THROW(train(compressed(method, tensor), 4, 1), UsageError) << method;
  }
  for (const double loss : train(compressed("bfloat16", tensor), 4, 3).losses) EXPECT_TRUE(std::isfinite(loss));
}

TEST(Compression, AnElementwiseMethodDoesNotSeeThePipeline) {
  // Blocks of a group differ with the cut, so formats with a scale a block do; bfloat16 has none.
  const Words cut = {"--parallel.pp=2", "--parallel.dp=2"};
  expect_equal(train(compressed("bfloat16", cut), 4, 3), train(compressed("bfloat16"), 2, 3), "bfloat16");
}

TEST(Compression, OneReplicaSendsNothing) {
  expect_equal(train(compressed("topk"), 1, 3), train(compressed("none"), 1, 3), "one worker");
}

TEST(Compression, WhatKeepsToNamesComesBack) {
  const PieceName name{3, 1, StateKind::kSharded, 128, 4096, "residual/layers.0/x"};
  const PieceName back = PieceName::parse(name.to_string());
  EXPECT_TRUE(PieceName::is_one(name.to_string()));
  EXPECT_EQ(back.replica, 3);
  EXPECT_EQ(back.place, 1);
  EXPECT_EQ(back.kind, StateKind::kSharded);
  EXPECT_EQ(back.first, 128u);
  EXPECT_EQ(back.total, 4096u);
  EXPECT_EQ(back.name, "residual/layers.0/x");
  for (const char* bad : {"compression/", "compression/1/2/0/0", "compression/x/0/0/0/1/a", "compression/1/0/0/0/1"}) {
    EXPECT_THROW(PieceName::parse(bad), Error) << bad;
  }
}

TEST(Compression, MistakesAreFoundBeforeAnythingRuns) {
  const auto fails = [](const std::string& method, const Words& words) {
    EXPECT_THROW(train(compressed(method, words), 2, 1), UsageError) << method << " " << words[0];
  };
  fails("topk", {"--compression.density=0"});
  fails("topk", {"--compression.density=1.5"});
  fails("qsgd", {"--compression.bits=3"});
  fails("powersgd", {"--compression.rank=0"});
  fails("dgc", {"--optimizer.kind=adamw"});
  fails("topk", {"--precision.compute=float16"});
  fails("topk", {"--checkpoint.spread=false"});
  fails("int8", {"--precision.compute=bfloat16", "--precision.gradients=compute"});
  fails("onebit_adam", {"--train.clip=0"});
  fails("onebit_adam", {"--train.clip=1", "--compression.warmup_steps=5"});
  fails("onebit_adam", {"--train.clip=0", "--compression.warmup_steps=5", "--optimizer.kind=sgd"});
  fails("onebit_adam", {"--train.clip=0", "--compression.warmup_steps=5", "--parallel.zero=1"});
  fails("none", {"--compression.gather=int8"});
  fails("none", {"--compression.gather=int3", "--parallel.zero=3"});
}

}  // namespace
}  // namespace trireme
