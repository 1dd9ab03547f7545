// Replicas that step alone and meet now and then, and gradients that Adasum combines: when replicas are alike, near
// what they end, and that a checkpoint changes nothing for who goes on from it.
#include <gtest/gtest.h>

#include <filesystem>

#include "numerics/training.h"
#include "trireme/compress/adasum.h"
#include "trireme/train/engine_checkpoints.h"

namespace trireme {
namespace {

Config local(const std::string& method, int every, const Words& more = {}, const std::string& model = "mlp") {
  Words words = {"--optimizer.warmup_steps=0", "--local.method=" + method, fmt::format("--local.every={}", every)};
  words.insert(words.end(), more.begin(), more.end());
  return config_of(model, words);
}

const Words kSgd = {"--optimizer.kind=sgd", "--optimizer.momentum=0", "--optimizer.lr=0.05", "--train.clip=0"};

/// The weights of each rank after each step, as they are.
using Weights = std::vector<torch::Tensor>;
std::vector<std::vector<Weights>> steps_of(const Config& config, int workers, int steps) {
  const OpenedData data = open_data(data_options_of(config));
  std::vector<std::vector<Weights>> all(static_cast<size_t>(workers));
  run_as_threads(workers, [&](World& world) {
    Trainer trainer(world, build_model(config), config, data);
    for (int step = 0; step < steps; ++step) {
      trainer.step();
      Weights& now = all[static_cast<size_t>(world.rank())].emplace_back();
      for (size_t i = 0; i < trainer.part().weights().size(); ++i) now.push_back(trainer.weight(i).clone());
    }
  });
  return all;
}

bool alike(const Weights& a, const Weights& b) { return std::equal(a.begin(), a.end(), b.begin(), same_bits); }

/// After which steps, counted from 1, all ranks have the same.
std::vector<int> alike_after(const Config& config, int workers, int steps) {
  const auto all = steps_of(config, workers, steps);
  std::vector<int> found;
  for (size_t step = 0; step < static_cast<size_t>(steps); ++step) {
    const bool same =
        std::all_of(all.begin(), all.end(), [&](const auto& of_rank) { return alike(of_rank[step], all[0][step]); });
    if (same) found.push_back(static_cast<int>(step) + 1);
  }
  return found;
}

TEST(LocalTraining, MeetingAfterEveryStepIsAnAllReduce) {
  for (const char* model : {"mlp", "gpt2"}) {
    for (const int workers : {2, 3, 4}) {
      const Outcome reduced = train(local("none", 1, kSgd, model), workers, 5);
      const Outcome met = train(local("average", 1, kSgd, model), workers, 5);
      EXPECT_LT(largest_difference(met, reduced), 1e-4) << model << workers;
      EXPECT_NEAR(met.losses.back(), reduced.losses.back(), 1e-5) << model << workers;
    }
  }
}

TEST(LocalTraining, ReplicasAreAlikeWhenTheyHaveMet) {
  using Steps = std::vector<int>;
  for (const int workers : {2, 3}) {
    for (const char* method : {"average", "diloco"}) {
      EXPECT_EQ(alike_after(local(method, 3), workers, 7), (Steps{3, 6})) << method << workers;
    }
  }
  EXPECT_EQ(alike_after(local("average", 3, {"--local.after=2"}), 2, 8), (Steps{1, 2, 5, 8}));
  for (const char* type : {"bfloat16", "float16"}) {
    const Words words = {std::string("--precision.compute=") + type, "--train.clip=0.5",
                         "--precision.loss_scale_init=128"};
    EXPECT_EQ(alike_after(local("average", 2, words, "gpt2"), 2, 5), (Steps{2, 4})) << type;
  }
  EXPECT_EQ(alike_after(local("diloco", 2, {"--local.format=int8"}), 3, 5), (Steps{2, 4}));
  EXPECT_EQ(alike_after(local("average", 4, {"--train.steps=6"}), 2, 6), (Steps{4, 6}));  // the end
}

TEST(LocalTraining, EveryMethodLearns) {
  const Words words = {"--train.steps=24", "--optimizer.lr=0.003"};
  const Outcome dense = train(local("none", 4, words), 3, 24);
  const double first = dense.losses[0];
  ASSERT_LT(dense.losses.back(), 0.9 * first);
  for (const char* method : {"average", "diloco"}) {
    const Outcome outcome = train(local(method, 4, words), 3, 24);  // compares all ranks
    EXPECT_LT(outcome.losses.back(), dense.losses.back() + 0.25 * (first - dense.losses.back())) << method;
  }
}

TEST(LocalTraining, AnOuterStepOfOneIsAnAverage) {
  const Words words = {"--local.outer_lr=1", "--local.outer_momentum=0"};
  const Outcome average = train(local("average", 3, words), 3, 7), diloco = train(local("diloco", 3, words), 3, 7);
  EXPECT_LT(largest_difference(diloco, average), 1e-3);
  EXPECT_NE(bits_of(train(local("diloco", 3), 3, 7).losses), bits_of(diloco.losses));
}

TEST(LocalTraining, FewerMeetingsSendLess) {
  const auto bytes = [](const Config& config) { return static_cast<double>(train(config, 2, 8).bytes_reduced); };
  const double often = bytes(local("average", 1, kSgd)), seldom = bytes(local("average", 4, kSgd));
  EXPECT_NEAR(often / seldom, 4, 0.2);
  EXPECT_NEAR(bytes(local("diloco", 4, kSgd)), seldom, 0.05 * seldom);
  const Words packed = {"--optimizer.kind=sgd", "--optimizer.momentum=0", "--local.format=int8"};
  EXPECT_NEAR(bytes(local("diloco", 4, packed)) / seldom, 0.25, 0.03);
}

TEST(LocalTraining, GoesOnFromACheckpointWithTheSameBits) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "trireme_local_training_test";
  for (const Words& words : {Words{"average"}, {"diloco"}, {"diloco", "--local.format=int8"}}) {
    SCOPED_TRACE(words.back());
    std::filesystem::remove_all(folder);
    const Config config = local(words[0], 2, Words(words.begin() + 1, words.end()));
    const OpenedData data = open_data(data_options_of(config));
    std::vector<Weights> ends;
    for (const bool resumes : {false, true}) {
      Weights end;
      run_as_threads(3, [&](World& world) {
        Trainer trainer(world, build_model(config), config, data);
        EngineCheckpoints checkpoints(world, trainer, folder, config.checkpoint, {});
        if (resumes) {
          ASSERT_TRUE(checkpoints.load_newest());
        } else {
          for (int step = 0; step < 4; ++step) trainer.step();
          EXPECT_TRUE(checkpoints.save());
          EXPECT_TRUE(checkpoints.finish());
        }
        while (trainer.steps_done() < 9) trainer.step();
        if (world.rank() != 1) return;
        for (size_t i = 0; i < trainer.part().weights().size(); ++i) end.push_back(trainer.weight(i).clone());
      });
      ends.push_back(std::move(end));
    }
    EXPECT_TRUE(alike(ends[0], ends[1]));
  }
  std::filesystem::remove_all(folder);
}

TEST(LocalTraining, OneReplicaMeetsNobody) {
  expect_equal(train(local("average", 2), 1, 3), train(local("none", 2), 1, 3), "one worker");
  const Words adasum = {"--parallel.aggregation=adasum"};
  expect_equal(train(local("none", 2, adasum), 1, 3), train(local("none", 2), 1, 3), "adasum");
}

TEST(Adasum, IsWhatTheFormulaMakesOfTheReplicasGradients) {
  Words words = kSgd;
  const Weights before = steps_of(local("none", 1, {"--optimizer.kind=sgd", "--optimizer.lr=1e-30"}), 1, 1)[0][0];
  const auto alone = steps_of(local("average", 100, words), 2, 1);
  words.push_back("--parallel.aggregation=adasum");
  const auto together = steps_of(local("none", 1, words), 2, 1);
  ASSERT_TRUE(alike(together[0][0], together[1][0]));
  for (size_t i = 0; i < before.size(); ++i) {
    const torch::Tensor a = (before[i] - alone[0][0][i]).flatten().contiguous();
    const torch::Tensor b = (before[i] - alone[1][0][i]).flatten().contiguous();
    const auto count = static_cast<size_t>(a.numel());
    adasum_pair(checked({"gradient", count, {}}), {a.data_ptr<float>(), count}, {b.data_ptr<float>(), count});
    const torch::Tensor step = (before[i] - together[0][0][i]).flatten();
    EXPECT_LT((step - a).norm().item<double>(), 1e-3 * a.norm().item<double>()) << i;
    EXPECT_GT((step - b).norm().item<double>(), 1e-2 * a.norm().item<double>()) << i;
  }
}

TEST(Adasum, ReplicasStayAlikeAndLearn) {
  for (const int workers : {2, 3, 4}) {
    const Config config = local("none", 1, {"--parallel.aggregation=adasum", "--train.clip=1"}, "gpt2");
    const Outcome outcome = train(config, workers, 5);
    EXPECT_LT(outcome.losses.back(), outcome.losses[0]) << workers;
  }
}

}  // namespace
}  // namespace trireme
