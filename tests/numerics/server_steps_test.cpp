// Steps with parameter servers: which move rows of the embedding alone, and which send and receive while they compute.
#include <gtest/gtest.h>

#include <atomic>

#include "numerics/server_cases.h"
#include "trireme/base/deadline.h"
#include "trireme/train/servers/server_aggregation.h"

namespace trireme {
namespace {

/// The last gradient of a pass of one worker.
void before_the_last_gradient(const Trainer& trainer, const std::function<void()>& action) {
  trainer.part().stages()[0].gradients->on_gradient = [action](size_t source, const torch::Tensor&) {
    if (source == 0) action();
  };
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
  const Words words = {"--model.tied=false", "--server.rows"};
  const Words compressed = words + Words{"--compression.method=qsgd"};
  EXPECT_TRUE(std::isfinite(train(served("gpt2", compressed, 2), 3, 3).losses.back()));
  for (const char* mode : {"asynchronous", "bounded"}) {
    const Outcome outcome = train(served("gpt2", words, 2, mode), 2, 6);
    EXPECT_LT(outcome.losses.back(), outcome.losses.front()) << mode;
  }
}

TEST(Overlap, GradientsArriveWhileTheBackwardPassGoesOn) {
  const Config config = served("gpt2", {"--train.leaves=2", "--train.global_batch=2"}, 2);  // one pass a step
  const OpenedData data = open_data(data_options_of(config));
  run_as_threads(2, [&](World& world) {
    Trainer trainer(world, build_model(config), config, data);
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
    Trainer trainer(world, build_model(config), config, data);
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
