// Parameter servers for models that are cut, and with compressed gradients: the bits of an all-reduce where nothing is
// rounded, and residuals that a checkpoint carries on.
#include <gtest/gtest.h>

#include <filesystem>
#include <mutex>

#include "numerics/server_cases.h"
#include "trireme/server/keys.h"
#include "trireme/train/servers/push_codec.h"
#include "trireme/train/servers/server_aggregation.h"

namespace trireme {
namespace {

Words layout(int pp, int tp) { return {fmt::format("--parallel.pp={}", pp), fmt::format("--parallel.tp={}", tp)}; }

void expect_bits_of_all_reduce(const std::string& model, int dp, int pp, int tp, const Words& more = {},
                               int servers = 2) {
  const std::string name = fmt::format("{}, dp {}, pp {}, tp {}", model, dp, pp, tp);
  SCOPED_TRACE(name);
  const Words words = layout(pp, tp) + more;
  const int workers = dp * pp * tp;
  const Outcome reduced = train(served(model, words, 0), workers, 3, /*evaluates=*/true);
  const Outcome with_servers = train(served(model, words, servers), workers, 3, /*evaluates=*/true);
  expect_equal(with_servers, reduced, name);
  EXPECT_EQ(with_servers.evaluation.loss, reduced.evaluation.loss);
}

TEST(ServerLayouts, PipelinesGiveTheBitsOfAnAllReduce) {
  expect_bits_of_all_reduce("gpt2", 2, 2, 1);  // its tied weights are used by both stages
  expect_bits_of_all_reduce("gpt2", 1, 2, 1);
  expect_bits_of_all_reduce("gpt2", 3, 2, 1, {"--precision.compute=bfloat16", "--train.clip=0.1"});
  expect_bits_of_all_reduce("llama", 2, 2, 1, kMomentum, 3);
  expect_bits_of_all_reduce("gpt2", 2, 2, 1, {"--model.layers=4", "--parallel.interleave=2"});
}

TEST(ServerLayouts, TensorParallelismGivesTheBitsOfAnAllReduce) {
  expect_bits_of_all_reduce("gpt2", 2, 1, 2);
  expect_bits_of_all_reduce("llama", 2, 1, 2, {"--parallel.sequence"});
  expect_bits_of_all_reduce("gpt2", 1, 1, 2, {"--precision.compute=bfloat16"});
}

TEST(ServerLayouts, AllTogetherGivesTheBitsOfAnAllReduce) {
  expect_bits_of_all_reduce("gpt2", 2, 2, 2, {"--train.leaves=4", "--train.global_batch=4"});
}

/// train() compares what ranks hold together.
TEST(ServerLayouts, WithoutRoundsModelsThatAreCutLearnAsWell) {
  for (const char* mode : {"asynchronous", "bounded"}) {
    const Words words = layout(2, 2) + Words{"--train.leaves=8", "--train.global_batch=8", "--optimizer.lr=0.003"};
    const Outcome outcome = train(served("gpt2", words, 2, mode), 8, 10);
    const Outcome synchronous = train(served("gpt2", words, 2), 8, 10);
    const double fall = synchronous.losses[0] - synchronous.losses.back();
    ASSERT_GT(fall, 0.05 * synchronous.losses[0]);
    EXPECT_NEAR(outcome.losses.back(), synchronous.losses.back(), 0.4 * fall) << mode;
  }
}

TEST(ServerLayouts, AWorkerOfAPipelineHoldsItsLayersAndNoMoments) {
  const auto bytes = [](int pp) {
    const Config config = served("gpt2", layout(pp, 1) + Words{"--model.layers=4", "--model.tied=false"}, 1);
    const OpenedData data = open_data(data_options_of(config));
    StateParts most;
    size_t sum = 0;
    std::mutex mutex;
    run_as_threads(2 * pp, [&](World& world) {
      Trainer trainer(world, build_model(config), config, data);
      trainer.step();
      const std::lock_guard lock(mutex);
      most.weights = std::max(most.weights, trainer.state_parts().weights);
      sum += trainer.state_parts().weights;
      most.optimizer = std::max(most.optimizer, trainer.state_parts().optimizer);
    });
    return std::pair(most, sum);
  };
  const auto [whole, of_all] = bytes(1);
  const auto [half, of_both] = bytes(2);
  EXPECT_EQ(whole.optimizer, 0u);
  EXPECT_EQ(half.optimizer, 0u);
  EXPECT_NEAR(static_cast<double>(of_both), static_cast<double>(of_all), 0.01 * static_cast<double>(of_all));
  EXPECT_LT(static_cast<double>(half.weights), 0.7 * static_cast<double>(whole.weights));  // one has the embedding
}

TEST(ServerCompression, EveryMethodLearnsLikeTheDenseOne) {
  constexpr int kSteps = 16;
  const Words words = {"--train.leaves=4", "--train.global_batch=4", fmt::format("--train.steps={}", kSteps),
                       "--optimizer.lr=0.005"};
  const Outcome dense = train(served("gpt2", words, 2), 2, kSteps);
  ASSERT_GT(fall_of(dense), 0.15);
  // The share of the dense fall that is reached at least.
  for (const auto& [method, fraction] : {std::pair{"float16", 0.99},
                                         {"bfloat16", 0.98},
                                         {"int8", 0.95},
                                         {"qsgd", 0.9},
                                         {"terngrad", 0.5},
                                         {"sign", 0.5},
                                         {"topk", 0.2}}) {
    const Outcome outcome =
        train(served("gpt2", words + Words{std::string("--compression.method=") + method}, 2), 2, kSteps);
    EXPECT_GT(fall_of(outcome), fraction * fall_of(dense)) << method;
    EXPECT_GT(largest_difference(outcome, dense), 0) << method;
  }
  for (const double loss : train(served("gpt2", kPlainSgd + Words{"--compression.method=dgc"}, 2), 3, 3).losses) {
    EXPECT_TRUE(std::isfinite(loss));
  }
}

/// Of a worker's bytes most are pushes here: weights come back whole.
TEST(ServerCompression, PushesAreShorter) {
  const Words words = {"--train.leaves=2", "--train.global_batch=2", "--model.tied=false"};
  const auto bytes = [&](const std::string& method) {
    const Config config = served("gpt2", words + Words{"--compression.method=" + method}, 1);
    const OpenedData data = open_data(data_options_of(config));
    uint64_t sent = 0;
    run_as_threads(2, [&](World& world) {
      Trainer trainer(world, build_model(config), config, data);
      const uint64_t before = trainer.servers()->worker_stats().bytes_sent;  // first weights
      for (int i = 0; i < 3; ++i) trainer.step();
      if (world.rank() == 1) sent = trainer.servers()->worker_stats().bytes_sent - before;
    });
    return static_cast<double>(sent);
  };
  const double dense = bytes("none");
  EXPECT_NEAR(bytes("bfloat16") / dense, 0.5, 0.05);
  EXPECT_NEAR(bytes("int8") / dense, 0.25, 0.05);
  EXPECT_LT(bytes("topk") / dense, 0.05);
}

/// Servers have one copy of what all places hold, so that no method lets it drift apart.
TEST(ServerCompression, GoesWithTensorParallelismAndPipelines) {
  constexpr int kSteps = 10;
  const Words small = {"--train.leaves=4", "--train.global_batch=4", "--optimizer.lr=0.005"};
  for (const auto& [pp, tp] : {std::pair(1, 2), {2, 1}, {2, 2}}) {
    const Words words = small + layout(pp, tp);
    const Outcome dense = train(served("gpt2", words, 2), 2 * pp * tp, kSteps);
    ASSERT_GT(fall_of(dense), 0.1);
    // The share of the dense fall that is reached at least: topk sends a hundredth.
    for (const auto& [method, fraction] : {std::pair{"topk", 0.15}, {"qsgd", 0.8}, {"int8", 0.8}}) {
      const Outcome outcome =
          train(served("gpt2", words + Words{std::string("--compression.method=") + method}, 2), 2 * pp * tp, kSteps);
      EXPECT_GT(fall_of(outcome), fraction * fall_of(dense)) << method << ", pp " << pp << ", tp " << tp;
    }
  }
}

TEST(ServerCompression, ResidualsAreInTheCheckpoint) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "trireme_server_layouts_test";
  const auto run = [&](const Config& config, int workers, int first, int last) {
    return train_between(config, workers, folder, first, last, [](Trainer& trainer) {
      double kept = 0;
      for (const StatePiece& piece : trainer.pieces()) {
        for (const float value : piece.values) kept += std::abs(value);
      }
      EXPECT_GT(kept, 0);
    });
  };
  const Words topk = {"--compression.method=topk", "--compression.density=0.05"};
  for (const Words& words : {topk, topk + layout(2, 1)}) {
    const int workers = words.size() > topk.size() ? 4 : 2;
    const Config config = served("gpt2", words, 2);
    std::filesystem::remove_all(folder);
    const auto straight = run(config, workers, 0, 4);
    std::filesystem::remove_all(folder);
    run(config, workers, 0, 2);
    const auto resumed = run(config, workers, 2, 4);
    for (size_t i = 0; i < straight.size(); ++i) EXPECT_TRUE(same_bits(straight[i], resumed[i])) << i;
  }
  // Between servers and sums without them, and other numbers of workers.
  run(served("gpt2", topk, 0), 2, 4, 5);
  run(served("gpt2", topk, 2), 3, 5, 6);
  std::filesystem::remove_all(folder);
}

/// Whatever pieces a key is cut into, and whoever saved it.
TEST(PushCodec, ResidualsGoByTheNamesOfTensors) {
  CompressionOptions options;
  options.method = Method::kTopK;
  options.density = 0.1;
  const size_t count = 10'000;
  const auto codec_with = [&](size_t piece, int replica, int dp) {
    auto codec = std::make_unique<PushCodec>(options, replica, dp);
    codec->add(server::KeyTable({{"w", count, 0, true}}, piece, 1), 0, {"w", "w (second use)"});
    return codec;
  };
  std::vector<float> gradient(count);
  for (size_t i = 0; i < count; ++i) gradient[i] = static_cast<float>(i % 97) - 48.f;
  const auto push = [&](PushCodec& codec, size_t piece) {
    const server::Codec functions = codec.codec(5);
    std::vector<float> received(count);
    for (size_t first = 0; first < count; first += piece) {
      const size_t length = std::min(piece, count - first);
      const auto bytes = functions.encode({"w", first, 3}, std::span(gradient).subspan(first, length));
      functions.decode({"w", first, 3}, bytes, std::span(received).subspan(first, length));
    }
    return received;
  };
  const auto one = codec_with(4096, 0, 2), two = codec_with(4096, 1, 2);
  const std::vector<float> sent = push(*one, 4096);
  push(*two, 4096);
  StatePieces second = two->save();
  for (StatePiece& piece : second) piece.name += " (second use)";
  const auto whole = codec_with(12'288, 0, 1);
  whole->load({one->save(), second});
  const StatePieces kept = whole->save();
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].name, "residual/w");
  for (size_t i = 0; i < count; ++i) ASSERT_EQ(kept[0].values[i], 2 * (gradient[i] - sent[i])) << i;
}

}  // namespace
}  // namespace trireme
