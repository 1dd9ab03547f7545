// Steps with parameter servers: which do not wait for the slowest, which move rows of the embedding alone, and which
// send and receive while they compute.
#include <gtest/gtest.h>

#include <atomic>

#include "numerics/server_cases.h"
#include "trireme/base/deadline.h"
#include "trireme/train/server_aggregation.h"

namespace trireme {
namespace {

/// The last gradient of a pass of one worker.
void before_the_last_gradient(const Trainer& trainer, const std::function<void()>& action) {
  trainer.part().stages()[0].gradients->on_gradient = [action](size_t source, const torch::Tensor&) {
    if (source == 0) action();
  };
}

TEST(BackupWorkers, AStepDoesNotWaitForTheSlowest) {
  const Words words = kPlainSgd + Words{"--server.backup_workers=1", "--train.leaves=3", "--train.global_batch=3"};
  const Config config = served("gpt2", words, 2);
  const OpenedData data = open_data(data_options_of(config));
  std::atomic<int> alone{0}, blocked{0}, further{0};
  std::vector<std::vector<double>> losses(3);
  std::vector<std::vector<torch::Tensor>> weights(3);
  uint64_t dropped = 0;
  run_as_threads(3, [&](World& world) {
    const auto rank = static_cast<size_t>(world.rank());
    const bool is_slow = rank == 2;
    Trainer trainer(world, config, data);
    const auto step = [&](int times) {
      for (int i = 0; i < times; ++i) losses[rank].push_back(trainer.step().loss);
    };
    if (is_slow) wait_for(alone, 2);  // until the others have made four steps
    step(4);
    if (!is_slow) count(alone);
    EXPECT_EQ(trainer.servers()->num_late(), is_slow ? 4 : 0);
    // In the midst of a step, until the others are two further.
    if (is_slow) {
      before_the_last_gradient(trainer, [&] {
        count(blocked);
        wait_for(further, 2);
      });
    } else {
      wait_for(blocked, 1);
    }
    step(1);
    if (is_slow) before_the_last_gradient(trainer, [] {});
    if (!is_slow) step(1);
    if (!is_slow) count(further);
    step(is_slow ? 3 : 2);
    EXPECT_EQ(trainer.steps_done(), 8);
    if (is_slow) {
      EXPECT_GE(trainer.servers()->num_late(), 6);
      dropped = trainer.servers()->worker_stats().num_dropped;
    }
    EXPECT_TRUE(std::isfinite(trainer.evaluate(1).loss));
    for (size_t i = 0; i < trainer.part().weights().size(); ++i) weights[rank].push_back(trainer.weight(i).clone());
  });
  EXPECT_GT(dropped, 0u);
  for (const size_t rank : {1u, 2u}) {
    EXPECT_EQ(bits_of(losses[rank]), bits_of(losses[0])) << rank;
    for (size_t i = 0; i < weights[0].size(); ++i) EXPECT_TRUE(same_bits(weights[rank][i], weights[0][i])) << rank;
  }
  EXPECT_LT(losses[0].back(), losses[0].front());
}

/// Two of three workers: the training whose batch is theirs.
TEST(BackupWorkers, WhoIsLateDoesNotCount) {
  const Words sgd = kPlainSgd + Words{"--train.clip=0.5"};
  const Config config =
      served("gpt2", sgd + Words{"--server.backup_workers=1", "--train.leaves=24", "--train.global_batch=24"}, 2);
  const OpenedData data = open_data(data_options_of(config));
  std::atomic<int> done{0};
  StepReport report;
  std::vector<torch::Tensor> weights;
  run_as_threads(3, [&](World& world) {
    Trainer trainer(world, config, data);
    if (world.rank() == 2) wait_for(done, 2);
    const StepReport own = trainer.step();
    count(done);
    if (world.rank() > 0) return;
    report = own;
    for (size_t i = 0; i < trainer.part().weights().size(); ++i) weights.push_back(trainer.weight(i).clone());
  });
  const Config reference = served("gpt2", sgd + Words{"--train.leaves=16", "--train.global_batch=16"}, 0);
  const OpenedData same_data = open_data(data_options_of(reference));
  run_as_threads(2, [&](World& world) {
    Trainer trainer(world, reference, same_data);
    const StepReport expected = trainer.step();
    EXPECT_NEAR(report.loss, expected.loss, 1e-6 * expected.loss);
    EXPECT_NEAR(report.gradient_norm, expected.gradient_norm, 1e-6 * expected.gradient_norm);
    for (size_t i = 0; i < weights.size(); ++i) EXPECT_TRUE(torch::allclose(trainer.weight(i), weights[i], 1e-6, 1e-8));
  });
}

TEST(BackupWorkers, WithEverybodyInTimeAStepStillEnds) {
  const Words words = {"--train.steps=30", "--optimizer.lr=0.003"};
  const Outcome all = train(served("mlp", words, 2), 3, 30);
  const Outcome some = train(served("mlp", words + Words{"--server.backup_workers=1"}, 2), 3, 30);
  const auto end = [](const std::vector<double>& losses) {
    return (losses.end()[-1] + losses.end()[-2] + losses.end()[-3]) / 3;
  };
  const double fall = all.losses[0] - end(all.losses);
  ASSERT_GT(fall, 0.1 * all.losses[0]);
  EXPECT_NEAR(end(some.losses), end(all.losses), 0.4 * fall);
  train(served("gpt2", {"--server.backup_workers=2", "--precision.compute=float16", "--server.replicate"}, 2), 4, 4);
}

TEST(Rows, GiveTheBitsOfTheWholeEmbeddingWithSgd) {
  const Words words = kPlainSgd + Words{"--model.tied=false"};
  for (const auto& [workers, more] : {std::pair(2, Words{}),
                                      {3, Words{"--train.clip=0.1"}},
                                      {2, Words{"--precision.compute=bfloat16"}},
                                      {4, Words{"--parallel.pp=2"}}}) {
    const std::string name = fmt::format("{} workers {}", workers, more.empty() ? "" : more[0]);
    const Outcome dense = train(served("gpt2", words + more, 2), workers, 4, /*evaluates=*/true);
    const Outcome rows = train(served("gpt2", words + more + Words{"--server.rows"}, 2), workers, 4, true);
    expect_equal(rows, dense, name);
    EXPECT_EQ(rows.evaluation.loss, dense.evaluation.loss) << name;
    EXPECT_LT(rows.bytes_reduced, dense.bytes_reduced) << name;
  }
}

/// With AdamW rows that no token names stay as they are, and so do their moments: the first step is that of the whole
/// embedding, later ones differ where a row has moments and no token.
TEST(Rows, OfAdamRestWhileNobodyNamesThem) {
  const Words words = {"--model.tied=false", "--optimizer.weight_decay=0", "--model.seq=12"};
  expect_equal(train(served("gpt2", words + Words{"--server.rows"}, 1), 2, 1), train(served("gpt2", words, 1), 2, 1),
               "first step");
  const Outcome rows = train(served("gpt2", words + Words{"--server.rows"}, 1), 2, 5),
                dense = train(served("gpt2", words, 1), 2, 5);
  EXPECT_NEAR(rows.losses.back(), dense.losses.back(), 0.02 * dense.losses.back());
  const auto table = [](const Outcome& outcome) {
    return std::find_if(outcome.state.begin(), outcome.state.end(),
                        [](const auto& item) {
                          return !item.first.starts_with("adam.") && item.first.ends_with("token.weight");
                        })
        ->second;
  };
  EXPECT_FALSE(same_bits(table(rows), table(dense)));
}

TEST(Rows, GoWithCompressionAndTheOtherModes) {
  for (const Words& more : {Words{"--compression.method=qsgd"}, Words{"--server.backup_workers=1"}}) {
    const Words words = Words{"--model.tied=false", "--server.rows"} + more;
    EXPECT_TRUE(std::isfinite(train(served("gpt2", words, 2), 3, 3).losses.back()));
  }
  const Words words = {"--model.tied=false", "--server.rows"};
  for (const char* mode : {"asynchronous", "bounded"}) {
    const Outcome outcome = train(served("gpt2", words, 2, mode), 2, 6);
    EXPECT_LT(outcome.losses.back(), outcome.losses.front()) << mode;
  }
}

TEST(Overlap, GradientsArriveWhileTheBackwardPassGoesOn) {
  const Config config = served("gpt2", {"--train.leaves=2", "--train.global_batch=2"}, 2);  // one pass a step
  const OpenedData data = open_data(data_options_of(config));
  run_as_threads(2, [&](World& world) {
    Trainer trainer(world, config, data);
    trainer.step();
    const uint64_t before = trainer.servers()->worker_stats().num_pushes;
    bool arrived = false;
    before_the_last_gradient(trainer, [&] {
      const Deadline deadline = Deadline::after(std::chrono::seconds(30));
      while (!arrived && !deadline.expired()) {
        arrived = trainer.servers()->worker_stats().num_pushes > before + 3;
        std::this_thread::yield();
      }
    });
    trainer.step();
    EXPECT_TRUE(arrived);
  });
}

/// A step does not wait for the new weights: the layers of the next do, each for its own.
TEST(Overlap, WeightsArriveWhileTheNextStepComputes) {
  const Config config = served("gpt2", {}, 2);
  const OpenedData data = open_data(data_options_of(config));
  run_as_threads(2, [&](World& world) {
    Trainer trainer(world, config, data);
    EXPECT_EQ(trainer.servers()->num_on_their_way(), 0);
    for (int i = 0; i < 2; ++i) {
      trainer.step();
      EXPECT_EQ(trainer.servers()->num_on_their_way(), static_cast<int>(trainer.parameters().entries().size()));
    }
    int first_pass = -1;
    before_the_last_gradient(trainer, [&] { first_pass = trainer.servers()->num_on_their_way(); });
    trainer.step();
    EXPECT_EQ(first_pass, 0);
    trainer.weight(0);
    EXPECT_EQ(trainer.servers()->num_on_their_way(), 0);
  });
}

}  // namespace
}  // namespace trireme
