// The same training on 1, 2, 3, 4 and 8 workers ends with the same bits; and what each setting may and may not change.
//
// Losses of the first steps are kept in tests/data/golden_losses.json. After a change that is meant to change them:
//   TRIREME_WRITE_GOLDEN=1 build/release/bin/numerics_tests --gtest_filter='Golden.*'
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "numerics/training.h"
#include "support/paths.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

class EveryModel : public testing::TestWithParam<const char*> {
 protected:
  std::string model() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Models, EveryModel, testing::Values("mlp", "gpt2", "llama"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(EveryModel, EveryNumberOfWorkersGivesTheSameBits) {
  const Config config = config_of(model(), {"--train.clip=0.5"});
  const Outcome one = train(config, 1);
  EXPECT_GT(one.norms[0], 0.5) << "clipping was not at work";
  EXPECT_NE(one.losses[0], one.losses[2]);
  for (const int workers : {2, 3, 4, 8}) {
    expect_equal(one, train(config, workers), fmt::format("{} workers", workers));
  }
}

TEST_P(EveryModel, LeavesOfSeveralMicroBatches) {
  const Config config = config_of(model(), {"--train.leaves=6"});
  const Outcome one = train(config, 1, 2);
  expect_equal(one, train(config, 2, 2), "2 workers, 12 micro-batches each");
  expect_equal(one, train(config, 3, 2), "3 workers, 8 micro-batches each");
  expect_equal(one, train(config, 6, 2), "6 workers, 4 micro-batches each");
  // Leaves are part of what fixes the bits: else the tests above could not fail.
  const Outcome other = train(config_of(model(), {"--train.leaves=24"}), 1, 2);
  EXPECT_NE(bits_of(one.norms), bits_of(other.norms));
  EXPECT_LT(largest_difference(one, other), 1e-3);
}

// 24 leaves: 18 and 6, 12 and 8 and 4, 2 and 20 and 2, 22 and 2, 15 and 9, none of them whole branches but by chance.
TEST_P(EveryModel, UnequalBatchPartsGiveTheSameBits) {
  const Outcome one = train(config_of(model(), {"--train.clip=0.5"}), 1);
  for (const auto& [batch_parts, workers] :
       {std::pair{"3,1", 2}, {"6,4,2", 3}, {"1,10,1", 3}, {"11,1", 2}, {"5,3", 2}, {"1,1", 2}}) {
    const Config config = config_of(model(), {"--train.clip=0.5", std::string("--parallel.shares=") + batch_parts});
    expect_equal(one, train(config, workers), batch_parts);
  }
}

TEST(UnequalBatchParts, GoWithOtherSettings) {
  for (const Words& words : std::vector<Words>{{"--parallel.zero=1"},
                                               {"--parallel.zero=2"},
                                               {"--train.leaves=8", "--train.recompute=full"},
                                               {"--precision.compute=bfloat16", "--precision.gradients=compute"},
                                               {"--model.dropout=0.3", "--parallel.overlap=false"}}) {
    Words unequal = {"--parallel.shares=3,1"};
    unequal.insert(unequal.end(), words.begin(), words.end());
    expect_equal(train(config_of("gpt2", words), 2), train(config_of("gpt2", unequal), 2), words[0]);
  }
  const Words tensor = {"--parallel.tp=2", "--parallel.dp=2"};
  expect_equal(train(config_of("gpt2", tensor), 4),
               train(config_of("gpt2", {tensor[0], tensor[1], "--parallel.shares=1,3"}), 4), "tp");
}

TEST_P(EveryModel, BucketsAndOverlapDoNotChangeBits) {
  constexpr int workers = 4;
  const Outcome reference = train(config_of(model()), workers, 2);
  for (const char* bucket : {"0.001", "64"}) {
    for (const char* overlap : {"true", "false"}) {
      const Words words = {fmt::format("--parallel.bucket_mb={}", bucket),
                           fmt::format("--parallel.overlap={}", overlap)};
      expect_equal(reference, train(config_of(model(), words), workers, 2),
                   fmt::format("bucket {} {}", bucket, overlap));
    }
  }
}

TEST_P(EveryModel, HeldOutLossIsTheSame) {
  // 48 samples in blocks of 5: an odd last block, and more blocks than workers.
  const Config config = config_of(model(), {"--train.micro_batch=5", "--train.global_batch=120"});
  const Evaluation one = train(config, 1, 1, true).evaluation;
  EXPECT_EQ(one.num_samples, 240);
  EXPECT_NEAR(one.perplexity, std::exp(one.loss), 1e-9 * one.perplexity);
  for (const int workers : {2, 3, 8}) {
    const Evaluation other = train(config, workers, 1, true).evaluation;
    EXPECT_EQ(bits_of({one.loss, one.accuracy}), bits_of({other.loss, other.accuracy})) << workers;
    EXPECT_EQ(one.num_samples, other.num_samples);
  }
}

TEST(Dropout, IsAFunctionOfStepAndMicroBatch) {
  for (const char* model : {"gpt2", "mlp"}) {
    const Config config = config_of(model, {"--model.dropout=0.3"});
    const Outcome one = train(config, 1);
    for (const int workers : {2, 3, 8}) expect_equal(one, train(config, workers), fmt::format("{} {}", model, workers));
    EXPECT_NE(bits_of(one.losses), bits_of(train(config_of(model), 1).losses)) << "nothing was dropped";
  }
}

TEST(Optimizers, OnTwoAndThreeWorkers) {
  for (const char* kind : {"adamw", "adam", "sgd"}) {
    const Config config = config_of("gpt2", {fmt::format("--optimizer.kind={}", kind)});
    const Outcome one = train(config, 1);
    for (const int workers : {2, 3}) expect_equal(one, train(config, workers), fmt::format("{} {}", kind, workers));
  }
}

// Eleven million weights a worker: data_parallel_resnet_test.cpp has what takes long.
TEST(ResNet, EveryNumberOfWorkersGivesTheSameBits) {
  const Config config = config_of("resnet", {"--train.leaves=4", "--train.global_batch=8", "--train.clip=0.5"});
  const Outcome one = train(config, 1, 2);
  for (const int workers : {2, 4}) expect_equal(one, train(config, workers, 2), fmt::format("{} workers", workers));
}

TEST(Statistics, OverAllReplicasAreThoseOfTheWholeBatch) {
  const Words common = {"--model.image=16", "--train.global_batch=16", "--optimizer.lr=0.001"};
  const auto with = [&](Words more) {
    more.insert(more.end(), common.begin(), common.end());
    return config_of("resnet", more);
  };
  const Outcome whole = train(with({"--train.leaves=1", "--train.micro_batch=16"}), 1, 1);
  const Words halves = {"--train.leaves=2", "--train.micro_batch=8"};
  const Outcome apart = train(with(halves), 2, 1);
  const Outcome together = train(with({halves[0], halves[1], "--model.sync_statistics=true"}), 2, 1);
  const auto gap = [&](const Outcome& other) {
    std::pair<double, std::string> largest;
    for (size_t i = 0; i < whole.state.size(); ++i) {
      if (whole.state[i].first.starts_with("sgd.")) continue;
      const double gap = (whole.state[i].second - other.state[i].second).abs().max().item<double>();
      largest = std::max(largest, {gap, whole.state[i].first});
    }
    return largest;
  };
  EXPECT_LT(gap(together).first, 1e-5) << gap(together).second;
  EXPECT_GT(gap(apart).first, 1e-3) << "statistics of halves should differ from those of the whole";
}

TEST(Aggregation, SumIsTheAverageTimesItsNumber) {
  const Words plain = {"--optimizer.kind=sgd", "--optimizer.momentum=0", "--optimizer.weight_decay=0",
                       "--train.clip=0"};
  Words average = plain, sum = plain;
  average.push_back("--optimizer.lr=0.24");
  sum.insert(sum.end(), {"--optimizer.lr=0.01", "--parallel.aggregation=sum"});
  const Outcome averaged = train(config_of("gpt2", average), 2), summed = train(config_of("gpt2", sum), 2);
  EXPECT_NEAR(summed.norms[0], 24 * averaged.norms[0], 1e-6 * summed.norms[0]);
  EXPECT_EQ(averaged.losses[0], summed.losses[0]);
  EXPECT_LT(largest_difference(averaged, summed), 1e-4);
  expect_equal(summed, train(config_of("gpt2", sum), 3), "sum on 3 workers");
}

class ShortTypes : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Types, ShortTypes, testing::Values("bfloat16", "float16"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(ShortTypes, SameBitsOnTwoWorkersAndCloseToFloat32) {
  const std::string type = fmt::format("--precision.compute={}", GetParam());
  for (const char* model : {"gpt2", "llama", "mlp"}) {
    const Words words = {type, "--train.clip=1", "--precision.loss_scale_init=1024"};
    const Outcome one = train(config_of(model, words), 1, 5), full = train(config_of(model, {"--train.clip=1"}), 1, 5);
    expect_equal(one, train(config_of(model, words), 2, 5), model);
    EXPECT_EQ(one.steps_skipped, 0) << model;
    EXPECT_NE(bits_of(one.losses), bits_of(full.losses)) << model;
    for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(one.losses[i], full.losses[i], 0.03 * full.losses[i]) << model << i;
  }
}

// Not float16: libtorch's convolutions in it take ten times as long on a CPU.
TEST(ShortTypesOfImages, SameBitsWithBatchNorm) {
  const Words words = {"--precision.compute=bfloat16", "--train.leaves=4", "--train.global_batch=16",
                       "--train.micro_batch=4"};
  const Outcome one = train(config_of("resnet", words), 1, 2);
  expect_equal(one, train(config_of("resnet", words), 2, 2), "resnet");
}

TEST_P(ShortTypes, ShortGradientsHalveWhatTravels) {
  const Words words = {fmt::format("--precision.compute={}", GetParam()), "--train.leaves=2", "--train.global_batch=2",
                       "--precision.loss_scale_init=1024"};
  Words shortened = words;
  shortened.push_back("--precision.gradients=compute");
  const Outcome full = train(config_of("gpt2", words), 2), half = train(config_of("gpt2", shortened), 2);
  const auto ratio = static_cast<double>(half.bytes_reduced) / static_cast<double>(full.bytes_reduced);
  EXPECT_NEAR(ratio, 0.5, 0.01) << half.bytes_reduced << " and " << full.bytes_reduced;
  EXPECT_EQ(half.losses[0], full.losses[0]) << "the loss is no gradient: it travels whole";
  EXPECT_NEAR(half.norms[0], full.norms[0], 0.02 * full.norms[0]);
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(half.losses[i], full.losses[i], 0.03 * full.losses[i]);
}

TEST(LossScaling, OverflowSkipsTheStepAndHalvesTheScale) {
  const double huge = std::ldexp(1.0, 40);
  const Config config =
      config_of("gpt2", {"--precision.compute=float16", fmt::format("--precision.loss_scale_init={}", huge)});
  const Outcome one = train(config, 1, 3);
  EXPECT_EQ(one.steps_skipped, 3);
  EXPECT_EQ(one.skipped, (std::vector<bool>{true, true, true}));
  EXPECT_EQ(one.loss_scale, huge / 8);
  const Outcome untouched = train(config, 1, 0);
  for (size_t i = 0; i < one.state.size(); ++i) {
    EXPECT_TRUE(same_bits(one.state[i].second, untouched.state[i].second)) << one.state[i].first;
  }
  expect_equal(one, train(config, 2, 3), "2 workers");
  // In time it finds a scale that fits.
  const Outcome longer = train(config, 1, 40);
  EXPECT_FALSE(longer.skipped.back());
  EXPECT_LT(longer.steps_skipped, 40);
  EXPECT_LT(longer.losses.back(), longer.losses.front());
}

TEST(LossScaling, GrowsBack) {
  const Config config = config_of("gpt2", {"--precision.compute=float16", "--precision.loss_scale_init=64",
                                           "--precision.loss_scale_growth_every=2"});
  EXPECT_EQ(train(config, 1, 4).loss_scale, 256);
}

class Golden : public testing::Test {};

TEST_F(Golden, FirstLosses) {
  const std::string path = source_path("tests/data/golden_losses.json");
  nlohmann::ordered_json found;
  for (const char* model : {"mlp", "resnet", "gpt2", "llama"}) {
    Words words = {"--train.leaves=4", "--train.global_batch=16", "--train.micro_batch=4"};
    // Small steps, and statistics of more than a few numbers: else another processor's last bits grow beyond 1e-4.
    const Words calm = {"--model.image=16", "--optimizer.lr=0.0003", "--train.global_batch=32",
                        "--train.micro_batch=8"};
    if (model == std::string("resnet")) words.insert(words.end(), calm.begin(), calm.end());
    found[model] = train(config_of(model, words), 1, 5).losses;
  }
  if (std::getenv("TRIREME_WRITE_GOLDEN") != nullptr) std::ofstream(path) << found.dump(2) << "\n";
  std::ifstream file(path);
  ASSERT_TRUE(file) << path;
  const auto golden = nlohmann::json::parse(file);
  ASSERT_EQ(golden.size(), found.size());
  for (const auto& [model, losses] : found.items()) {
    for (size_t i = 0; i < losses.size(); ++i) {
      const double expected = golden.at(model).at(i), loss = losses.at(i);
      EXPECT_NEAR(loss, expected, 1e-4 * expected) << model << ", step " << i + 1;
    }
  }
}

}  // namespace
}  // namespace trireme
