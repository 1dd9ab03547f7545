// Steps that do not wait for the slowest replicas, each of which is cut over several workers: a replica counts as a
// whole or not at all.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "numerics/server_cases.h"
#include "trireme/train/server_aggregation.h"

namespace trireme {
namespace {

const std::vector<Words> kCuts = {
    {"--parallel.tp=2"}, {"--parallel.pp=2"}, {"--parallel.pp=2", "--parallel.tp=2", "--model.tied=false"}};

int workers_of_replica(const Config& config) { return static_cast<int>(config.parallel.pp * config.parallel.tp); }

/// Two of three replicas: the training whose batch is theirs.
TEST(BackupReplicas, WhoIsLateDoesNotCount) {
  at::set_num_threads(1);
  const Words sgd = kPlainSgd + Words{"--train.clip=0.5"};
  for (const Words& cut : kCuts) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(cut, " ")));
    const Config config = served(
        "gpt2", sgd + cut + Words{"--server.backup_workers=1", "--train.leaves=24", "--train.global_batch=24"}, 2);
    const int size = workers_of_replica(config);
    const OpenedData data = open_data(data_options_of(config));
    std::atomic<int> done{0};
    StepReport report;
    std::vector<torch::Tensor> weights;
    run_as_threads(3 * size, [&](World& world) {
      Trainer trainer(world, config, data);
      const bool is_slow = world.rank() >= 2 * size;
      if (is_slow) wait_for(done, 2 * size);
      const StepReport own = trainer.step();
      EXPECT_EQ(trainer.servers()->num_late(), is_slow ? 1 : 0);
      if (world.rank() == 0) report = own;
      for (size_t i = 0; i < trainer.part().weights().size(); ++i) {
        const torch::Tensor weight = trainer.weight(i).clone();
        if (world.rank() == 0) weights.push_back(weight);
      }
      count(done);
    });
    const Config reference = served("gpt2", sgd + cut + Words{"--train.leaves=16", "--train.global_batch=16"}, 0);
    const OpenedData same_data = open_data(data_options_of(reference));
    run_as_threads(2 * size, [&](World& world) {
      Trainer trainer(world, reference, same_data);
      const StepReport expected = trainer.step();
      EXPECT_NEAR(report.loss, expected.loss, 1e-6 * expected.loss);
      EXPECT_NEAR(report.gradient_norm, expected.gradient_norm, 1e-6 * expected.gradient_norm);
      for (size_t i = 0; i < weights.size(); ++i) {
        EXPECT_TRUE(torch::allclose(trainer.weight(i), weights[i], 1e-6, 1e-8));
      }
    });
  }
}

/// Late in the midst of a step, and by several of them.
TEST(BackupReplicas, AStepDoesNotWaitForTheSlowest) {
  at::set_num_threads(1);
  for (const Words& cut : kCuts) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(cut, " ")));
    const Config config = served(
        "gpt2", kPlainSgd + cut + Words{"--server.backup_workers=1", "--train.leaves=4", "--train.global_batch=4"}, 2);
    const int size = workers_of_replica(config);
    const OpenedData data = open_data(data_options_of(config));
    std::atomic<int> blocked{0}, further{0};
    std::vector<std::vector<double>> losses(static_cast<size_t>(2 * size));
    std::vector<std::vector<torch::Tensor>> weights(losses.size());
    run_as_threads(2 * size, [&](World& world) {
      const auto rank = static_cast<size_t>(world.rank());
      const bool is_slow = world.rank() >= size;
      Trainer trainer(world, config, data);
      bool has_waited = false;
      if (is_slow) {
        trainer.part().stages()[0].gradients->on_gradient = [&](size_t source, const torch::Tensor&) {
          if (source > 0 || std::exchange(has_waited, true)) return;
          count(blocked);
          wait_for(further, size);
        };
      } else {
        wait_for(blocked, 1);
      }
      for (int step = 0; step < 3; ++step) losses[rank].push_back(trainer.step().loss);
      if (!is_slow) count(further);
      losses[rank].push_back(trainer.step().loss);
      EXPECT_EQ(trainer.steps_done(), 4);
      if (is_slow) {
        EXPECT_GE(trainer.servers()->num_late(), 3);
      }
      EXPECT_TRUE(std::isfinite(trainer.evaluate(1).loss));
      for (size_t i = 0; i < trainer.part().weights().size(); ++i) weights[rank].push_back(trainer.weight(i).clone());
    });
    for (size_t rank = 1; rank < losses.size(); ++rank) {
      EXPECT_EQ(bits_of(losses[rank]), bits_of(losses[0])) << rank;
      for (size_t i = 0; i < weights[0].size(); ++i) EXPECT_TRUE(same_bits(weights[rank][i], weights[0][i])) << rank;
    }
  }
}

// Whoever is fast, a gradient that is pushed counts: so every key takes the replicas that were marked. What is dropped
// is the question of a replica that came late, asked by its first worker.
TEST(BackupReplicas, EveryKeyTakesTheSameReplicas) {
  at::set_num_threads(1);
  for (const Words& more : {Words{}, Words{"--server.replicate"}, Words{"--compression.method=topk"}}) {
    const Config config = served(
        "gpt2",
        Words{"--parallel.tp=2", "--server.backup_workers=1", "--train.leaves=6", "--train.global_batch=6"} + more, 2);
    const OpenedData data = open_data(data_options_of(config));
    std::atomic<int64_t> late{0}, dropped{0};
    run_as_threads(6, [&](World& world) {
      Trainer trainer(world, config, data);
      std::minstd_rand random(static_cast<unsigned>(world.rank() + 1));
      trainer.part().stages()[0].gradients->on_gradient = [&](size_t, const torch::Tensor&) {
        for (auto turns = random() % 20; turns > 0; --turns) std::this_thread::yield();
      };
      for (int step = 0; step < 12; ++step) EXPECT_TRUE(std::isfinite(trainer.step().loss));
      const auto own_dropped = static_cast<int64_t>(trainer.servers()->worker_stats().num_dropped);
      if (trainer.groups().place > 0) {
        EXPECT_EQ(own_dropped, 0);
      } else {
        late += trainer.servers()->num_late();
        dropped += own_dropped;
      }
    });
    EXPECT_EQ(late, 12) << "one of three in each step";
    EXPECT_LE(dropped, late) << "some leave the step out before they ask";
  }
}

}  // namespace
}  // namespace trireme
