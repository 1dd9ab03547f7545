// Replicas that share optimizer state, gradients and weights: the same bits as replicas that hold everything.
#include <gtest/gtest.h>

#include <filesystem>

#include "numerics/training.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

/// One micro-batch a worker, so that nothing is summed before it is sharded.
Config sharded_config(const std::string& model, int workers, const Words& more = {}) {
  const int micro = model == "resnet" ? 2 : 1;
  Words words = {"--optimizer.warmup_steps=0", fmt::format("--train.leaves={}", workers),
                 fmt::format("--train.micro_batch={}", micro), fmt::format("--train.global_batch={}", micro * workers),
                 "--parallel.bucket_mb=0.02"};
  words.insert(words.end(), more.begin(), more.end());
  return config_of(model, words);
}

void expect_equal_in_stages(const std::string& model, int replicas, int workers, const Words& more,
                            const std::vector<Words>& cases, int steps = 4) {
  const Outcome whole = train(sharded_config(model, replicas, more), workers, steps, /*evaluates=*/true);
  for (const Words& each : cases) {
    std::string name = fmt::format("{}, {} workers", model, workers);
    for (const std::string& word : each) name += " " + word;
    SCOPED_TRACE(name);
    Words words = more;
    words.insert(words.end(), each.begin(), each.end());
    const Outcome sharded = train(sharded_config(model, replicas, words), workers, steps, /*evaluates=*/true);
    expect_equal(sharded, whole, name);
    EXPECT_EQ(sharded.evaluation.loss, whole.evaluation.loss);
    EXPECT_EQ(sharded.evaluation.accuracy, whole.evaluation.accuracy);
  }
}

const std::vector<Words> kStages = {{"--parallel.zero=1"}, {"--parallel.zero=2"}, {"--parallel.zero=3"}};

TEST(Zero, StagesChangeNoBit) {
  for (const char* model : {"gpt2", "llama", "mlp", "resnet"}) {
    for (const int workers : {2, 3}) expect_equal_in_stages(model, workers, workers, {}, kStages);
  }
  for (const int workers : {4, 8}) expect_equal_in_stages("gpt2", workers, workers, {}, kStages);
}

TEST(Zero, WhatIsFilledIsGathered) {
  for (const Words& stage : kStages) {
    const Config config = sharded_config("gpt2", 3, stage);
    const OpenedData data = open_data(data_options_of(config));
    run_as_threads(3, [&](World& world) {
      Trainer trainer(world, build_model(config), config, data);
      for (const Trainer::NamedTensor& item : trainer.state()) {
        const torch::Tensor wanted = trainer.gather(item).detach().clone() * 2 + torch::arange(1, 2);
        trainer.fill(item, wanted);
        EXPECT_TRUE(same_bits(trainer.gather(item).detach(), wanted)) << item.name << ", " << stage[0];
      }
    });
  }
}

TEST(Zero, ClippingAndMixedPrecision) {
  expect_equal_in_stages("gpt2", 3, 3, {"--train.clip=0.5"}, kStages);
  expect_equal_in_stages("gpt2", 2, 2, {"--precision.compute=bfloat16", "--train.clip=0.5"}, kStages);
  expect_equal_in_stages("llama", 2, 2, {"--precision.compute=bfloat16", "--precision.gradients=compute"}, kStages);
  expect_equal_in_stages("gpt2", 2, 2, {"--precision.compute=float16"}, kStages);
}

TEST(Zero, RecomputationDropoutAndOrder) {
  expect_equal_in_stages("gpt2", 2, 2, {"--model.dropout=0.1", "--train.recompute=full"}, kStages);
  expect_equal_in_stages("gpt2", 2, 2, {"--train.recompute=selective"}, kStages);
  expect_equal_in_stages("gpt2", 2, 2, {},
                         {{"--parallel.zero=3", "--parallel.zero_keep"},
                          {"--parallel.zero=3", "--parallel.bucket_mb=4"},
                          {"--parallel.zero=2", "--parallel.overlap=false"},
                          {"--parallel.zero=3", "--parallel.overlap=false"}});
}

// Several micro-batches a worker, summed before they are shared.
TEST(Zero, AccumulationChangesNoBit) {
  const Words accumulates = {"--train.leaves=12", "--train.global_batch=24"};
  for (const int workers : {2, 3, 4}) expect_equal_in_stages("gpt2", workers, workers, accumulates, kStages, 3);
}

TEST(Zero, SumsOfShardsAreNear) {
  const Words accumulates = {"--train.leaves=12", "--train.global_batch=24"};
  const Outcome whole = train(sharded_config("gpt2", 2, accumulates), 2, 5);
  for (const char* stage : {"2", "3"}) {
    Words words = accumulates;
    words.insert(words.end(), {std::string("--parallel.zero=") + stage, "--parallel.zero_accumulation=shares"});
    const Outcome scattered = train(sharded_config("gpt2", 2, words), 2, 5);
    EXPECT_NEAR(scattered.losses.back(), whole.losses.back(), 1e-5 * whole.losses.back()) << stage;
    EXPECT_LT(largest_difference(scattered, whole), 0.05) << stage;
  }
}

TEST(Zero, SomeReplicasShardAndOthersCopy) {
  expect_equal_in_stages("gpt2", 4, 4, {"--train.clip=0.5"},
                         {{"--parallel.zero=1", "--parallel.zero_shards=2"},
                          {"--parallel.zero=2", "--parallel.zero_shards=2"},
                          {"--parallel.zero=3", "--parallel.zero_shards=2"},
                          {"--parallel.zero=3", "--parallel.zero_shards=4"}});
}

TEST(Zero, WithPipelines) {
  const Words pipeline = {"--parallel.pp=2", "--parallel.dp=2", "--train.leaves=4", "--train.global_batch=8"};
  expect_equal_in_stages("gpt2", 2, 4, pipeline, kStages, 3);
  Words again = pipeline;
  again.push_back("--train.recompute=full");
  expect_equal_in_stages("llama", 2, 4, again, kStages, 3);
  Words interleaved = {"--parallel.pp=2",
                       "--parallel.dp=2",
                       "--train.leaves=4",
                       "--train.global_batch=8",
                       "--parallel.schedule=interleaved",
                       "--model.layers=3"};
  expect_equal_in_stages("gpt2", 2, 4, interleaved, kStages, 3);
  Words split = {"--parallel.pp=2",        "--parallel.dp=2",          "--train.leaves=4",
                 "--train.global_batch=8", "--parallel.schedule=zb-v", "--model.layers=3"};
  expect_equal_in_stages("gpt2", 2, 4, split, {kStages[0], kStages[1]}, 3);
}

TEST(Zero, WithTensorParallelism) {
  expect_equal_in_stages("gpt2", 2, 4, {"--parallel.tp=2", "--train.clip=0.5"}, kStages, 3);
  expect_equal_in_stages("llama", 2, 4, {"--parallel.tp=2", "--parallel.sequence"}, kStages, 3);
  expect_equal_in_stages(
      "gpt2", 2, 8, {"--parallel.tp=2", "--parallel.pp=2", "--train.leaves=4", "--train.global_batch=8"}, kStages, 2);
}

TEST(Zero, WithCompression) {
  for (const char* method : {"topk", "int8", "powersgd"}) {
    // Groups are cut otherwise, so other elements are chosen, and other scales.
    const std::string compressed = std::string("--compression.method=") + method;
    const double whole = train(sharded_config("gpt2", 2, {compressed}), 2, 6).losses.back();
    for (const Words& stage : kStages) {
      const Outcome sharded = train(sharded_config("gpt2", 2, {compressed, stage[0]}), 2, 6);
      EXPECT_NEAR(sharded.losses.back(), whole, 0.02 * whole) << method << stage[0];
    }
  }
}

// A rank hands its half to the other, once: half of what a sum that all need takes.
TEST(Zero, PackedGradientsAreScatteredOnce) {
  const auto bytes = [](const char* method, const char* stage) {
    return static_cast<double>(
        train(sharded_config("gpt2", 2, {"--model.hidden=64", std::string("--compression.method=") + method, stage}), 2,
              2)
            .bytes_reduced);
  };
  EXPECT_NEAR(bytes("int8", "--parallel.zero=3") / bytes("int8", "--parallel.zero=0"), 0.5, 0.03);
  EXPECT_NEAR(bytes("int8", "--parallel.zero=2") / bytes("int8", "--parallel.zero=0"), 0.5, 0.03);
}

// What travels is rounded; what is updated is not, so that roundings do not add up. All ranks have the same losses
// (train() looks), for all compute with the same values.
TEST(Zero, PackedWeightsTrainNearTheExactOnes) {
  const Words stage = {"--parallel.zero=3", "--model.hidden=64"};
  for (const Words& more : {Words{}, {"--precision.compute=bfloat16"}, {"--parallel.zero_keep"}}) {
    Words words = stage;
    words.insert(words.end(), more.begin(), more.end());
    const Outcome exact = train(sharded_config("gpt2", 3, words), 3, 12, /*evaluates=*/true);
    Words packed = words;
    packed.push_back("--compression.gather=int8");
    const Outcome outcome = train(sharded_config("gpt2", 3, packed), 3, 12, /*evaluates=*/true);
    EXPECT_NEAR(outcome.losses.back(), exact.losses.back(), 0.01 * exact.losses.back());
    EXPECT_NEAR(outcome.evaluation.loss, exact.evaluation.loss, 0.01 * exact.evaluation.loss);
    EXPECT_NE(bits_of(outcome.losses), bits_of(exact.losses));
    constexpr double kBits = 8.06;
    const double whole = more.empty() || more[0] == "--parallel.zero_keep" ? 32 : 16;
    const double fraction = static_cast<double>(outcome.bytes_gathered) / static_cast<double>(exact.bytes_gathered);
    EXPECT_NEAR(fraction, kBits / whole, 0.02 * kBits / whole + 0.002);
  }
  expect_equal_in_stages("gpt2", 2, 2, {"--parallel.zero=3", "--compression.gather=int8"}, {{"--parallel.zero_keep"}});
}

// Where a stage of a pipeline has a copy of a weight, it computes with what the owner's stage does.
TEST(Zero, PackedWeightsInAPipeline) {
  const Words words = {"--parallel.pp=2", "--parallel.dp=2", "--parallel.zero=3", "--train.leaves=2",
                       "--train.global_batch=4"};
  Words packed = words;
  packed.push_back("--compression.gather=int8");
  const double exact = train(sharded_config("gpt2", 2, words), 4, 6).losses.back();
  EXPECT_NEAR(train(sharded_config("gpt2", 2, packed), 4, 6).losses.back(), exact, 0.01 * exact);
  const Words sets = {"--parallel.zero=3", "--compression.gather=int8", "--parallel.zero_shards=2"};
  for (const double loss : train(sharded_config("gpt2", 4, sets), 4, 4).losses) EXPECT_TRUE(std::isfinite(loss));
}

TEST(Zero, OffloadChangesNoBit) {
  const std::string folder = (std::filesystem::temp_directory_path() / "trireme-zero-test").string();
  expect_equal_in_stages("gpt2", 2, 2, {"--precision.compute=bfloat16"},
                         {{"--parallel.offload=" + folder}, {"--parallel.zero=3", "--parallel.offload=" + folder}});
  EXPECT_TRUE(std::filesystem::is_empty(folder)) << "files have no names";
  std::filesystem::remove_all(folder);
}

// Weights that lie in a file come when a layer needs them: for replicas, for a worker alone, in a pipeline, where a
// second use is another stage's, and packed.
TEST(Zero, WeightsMayLieInAFile) {
  const std::string folder = (std::filesystem::temp_directory_path() / "trireme-zero-weights-test").string();
  const Words there = {"--parallel.zero=3", "--parallel.offload=" + folder, "--parallel.offload_weights"};
  const auto with = [&](const Words& more) {
    Words words = there;
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  for (const int workers : {1, 2, 3}) {
    expect_equal_in_stages("gpt2", workers, workers, {}, {there, with({"--parallel.zero_keep"})});
  }
  for (const char* model : {"llama", "resnet"}) expect_equal_in_stages(model, 1, 1, {}, {there});
  expect_equal_in_stages("gpt2", 2, 2, {"--precision.compute=bfloat16", "--train.clip=0.5"}, {there});
  expect_equal_in_stages("gpt2", 1, 1, {"--train.recompute=full", "--train.leaves=4", "--train.global_batch=4"},
                         {there, with({"--parallel.zero_accumulation=shares"})});
  expect_equal_in_stages("gpt2", 1, 2, {"--parallel.pp=2", "--train.leaves=2", "--train.global_batch=2"}, {there});
  expect_equal_in_stages("gpt2", 2, 2, {"--parallel.zero=3", "--compression.gather=int8"}, {there});
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace trireme
