// Trainings whose gradients go to parameter servers: with rounds the same bits as an all-reduce, without them nearly as
// good, and checkpoints that go from one to the other.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <mutex>

#include "numerics/server_cases.h"
#include "trireme/base/error.h"
#include "trireme/train/servers/server_aggregation.h"

namespace trireme {
namespace {

void expect_same_bits(const std::string& model, int workers, const std::vector<int>& servers, const Words& more = {}) {
  const Outcome reduced = train(served(model, more, 0), workers, 3, /*evaluates=*/true);
  for (const int count : servers) {
    const std::string name = fmt::format("{}, {} workers, {} servers", model, workers, count);
    SCOPED_TRACE(name);
    const Outcome with_servers = train(served(model, more, count), workers, 3, /*evaluates=*/true);
    expect_equal(with_servers, reduced, name);
    EXPECT_EQ(with_servers.evaluation.loss, reduced.evaluation.loss);
    EXPECT_EQ(reduced.bytes_reduced > 0, workers > 1);
    EXPECT_GT(with_servers.bytes_reduced, reduced.bytes_reduced / 2);
  }
}

TEST(ServerTraining, GivesTheBitsOfAnAllReduce) {
  for (const int workers : {2, 3, 4}) expect_same_bits("gpt2", workers, {1, 2, 3});
  for (const int workers : {1, 2, 4}) expect_same_bits("mlp", workers, {2}, kMomentum);
  expect_same_bits("gpt2", 3, {2}, kMomentum);
  expect_same_bits("resnet", 2, {2});
}

TEST(ServerTraining, ForTreesThatAreNoPowerOfTwo) {
  for (const int leaves : {6, 14}) {
    const Words words = {fmt::format("--train.leaves={}", leaves), fmt::format("--train.global_batch={}", 2 * leaves)};
    expect_same_bits("gpt2", 2, {2}, words);
  }
  expect_same_bits("gpt2", 3, {2}, {"--train.leaves=3", "--train.global_batch=3"});
}

TEST(ServerTraining, ClipsRoundsAndSkipsAsAnAllReduceDoes) {
  expect_same_bits("gpt2", 2, {2}, {"--train.clip=0.5"});
  expect_same_bits("gpt2", 3, {1}, {"--train.clip=0.1", "--precision.compute=bfloat16", "--optimizer.decay=all"});
  expect_same_bits("gpt2", 2, {2}, {"--precision.compute=float16", "--precision.loss_scale_init=1e30"});
  expect_same_bits("gpt2", 2, {2}, {"--parallel.overlap=false", "--model.tied=false"});
}

TEST(ServerTraining, ReplicatedServersGiveTheSame) { expect_same_bits("mlp", 2, {2}, {"--server.replicate"}); }

TEST(ServerTraining, WorkersHoldNoOptimizerState) {
  const auto bytes = [](int servers) {
    const Config config = served("gpt2", {"--model.hidden=64"}, servers);
    const OpenedData data = open_data(data_options_of(config));
    size_t most = 0, parameters = 0;
    std::mutex mutex;
    run_as_threads(2, [&](World& world) {
      Trainer trainer(world, build_model(config), config, data);
      trainer.step();
      const std::lock_guard lock(mutex);
      most = std::max(most, trainer.state_bytes());
      parameters = static_cast<size_t>(trainer.part().num_parameters());
    });
    return std::pair(most, parameters);
  };
  const auto [with_servers, count] = bytes(1);
  const size_t moments = bytes(0).first - with_servers;
  EXPECT_GE(moments, 8 * count);
  EXPECT_LT(moments, 8 * count + 8 * count / 10);
}

/// Both end where they would with one of them all the way.
TEST(ServerTraining, CheckpointsGoBothWays) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "trireme_server_training_test";
  const auto run = [&](const Config& config, int first, int last) {
    return train_between(config, 2, folder, first, last, {}, [](Trainer& trainer) { trainer.step(); });
  };
  const Config reduced = served("gpt2", {"--train.clip=0.5"}, 0),
               with_servers = served("gpt2", {"--train.clip=0.5"}, 2);
  std::vector<std::vector<torch::Tensor>> ends;
  for (const auto& [before, after] : {std::pair(&reduced, &reduced),
                                      {&with_servers, &reduced},
                                      {&reduced, &with_servers},
                                      {&with_servers, &with_servers}}) {
    std::filesystem::remove_all(folder);
    run(*before, 0, 2);
    ends.push_back(run(*after, 2, 4));
  }
  std::filesystem::remove_all(folder);
  for (size_t way = 1; way < ends.size(); ++way) {
    for (size_t i = 0; i < ends[0].size(); ++i) EXPECT_TRUE(same_bits(ends[way][i], ends[0][i])) << way << " " << i;
  }
}

// The loss falls as far as in the synchronous mode, within 30 % of that way.
TEST(ServerTraining, WithoutRoundsItLearnsAsWell) {
  const Words words = {"--train.steps=30", "--optimizer.lr=0.003"};
  const auto end = [](const std::vector<double>& losses) {
    return (losses.end()[-1] + losses.end()[-2] + losses.end()[-3]) / 3;
  };
  for (const Words& optimizer : {Words{}, kMomentum}) {
    Words all = words;
    all.insert(all.end(), optimizer.begin(), optimizer.end());
    const Outcome synchronous = train(served("mlp", all, 2), 3, 30);
    const double fall = synchronous.losses[0] - end(synchronous.losses);
    ASSERT_GT(fall, 0.1 * synchronous.losses[0]);
    for (const char* mode : {"asynchronous", "bounded"}) {
      const Outcome outcome = train(served("mlp", all, 2, mode), 3, 30);  // all ranks see one state
      EXPECT_NEAR(end(outcome.losses), end(synchronous.losses), 0.3 * fall) << mode;
    }
  }
}

// Losses are summed at every step, so that nobody gets further ahead than one: only a bound of 0 holds workers back
// more.
TEST(ServerTraining, NobodyIsFurtherAheadThanTheBound) {
  for (const uint64_t bound : {0u, 1u, 4u}) {
    const Config config = served("mlp", {fmt::format("--server.staleness={}", bound)}, 2, "bounded");
    const OpenedData data = open_data(data_options_of(config));
    run_as_threads(3, [&](World& world) {
      Trainer trainer(world, build_model(config), config, data);
      for (int i = 0; i < 30; ++i) EXPECT_TRUE(std::isfinite(trainer.step().loss));
      for (const server::ServerStats& stats : trainer.servers()->stats()) {
        const uint64_t most = std::min<uint64_t>(bound, 1);
        EXPECT_LE(stats.shards.largest_lead, most) << "a bound of " << bound;
        EXPECT_LE(stats.shards.largest_staleness, 2 * (2 * most + 1));  // two others, each by so many steps
      }
    });
  }
}

TEST(ServerTraining, MoreServersThanKeysAreRefused) {
  try {
    train(served("mlp", {}, 100), 2, 1);
    FAIL() << "100 servers";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("100"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace trireme
