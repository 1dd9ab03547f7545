// Small trainings with parameter servers, for the tests of them.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>

#include "numerics/training.h"
#include "trireme/train/engine_checkpoints.h"

namespace trireme {

/// `servers` = 0: the same training by all-reduce.
inline Config served(const std::string& model, const Words& more, int servers = 1,
                     const std::string& mode = "synchronous") {
  Words words = {"--optimizer.warmup_steps=0", "--parallel.bucket_mb=0.02"};
  words.insert(words.end(), more.begin(), more.end());
  if (servers > 0) {
    words.insert(words.end(),
                 {"--parallel.aggregation=server", fmt::format("--server.count={}", servers), "--server.mode=" + mode});
  }
  return config_of(model, words);
}

inline const Words kMomentum = {"--optimizer.kind=sgd", "--optimizer.momentum=0.9", "--optimizer.lr=0.01"};
inline const Words kPlainSgd = {"--optimizer.kind=sgd", "--optimizer.momentum=0", "--optimizer.weight_decay=0",
                                "--optimizer.lr=0.1"};

inline Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// Rank threads that wait for each other; the deadline is the test's own.
inline void wait_for(std::atomic<int>& counter, int value) {
  for (int now = counter; now < value; now = counter) counter.wait(now);
}

inline void count(std::atomic<int>& counter) {
  ++counter;
  counter.notify_all();
}

/// From step `first`, of the newest checkpoint in the folder where it is not 0, to step `last`, which is saved; then
/// the weights. What is to be looked at or done on every rank before and after the save may be given.
inline std::vector<torch::Tensor> train_between(const Config& config, int workers, const std::filesystem::path& folder,
                                                int first, int last,
                                                const std::function<void(Trainer&)>& before_save = {},
                                                const std::function<void(Trainer&)>& after_save = {}) {
  const OpenedData data = open_data(data_options_of(config));
  std::vector<torch::Tensor> weights;
  run_as_threads(workers, [&](World& world) {
    Trainer trainer(world, build_model(config), config, data);
    EngineCheckpoints checkpoints(world, trainer, folder, config.checkpoint, {});
    if (first > 0) {
      ASSERT_TRUE(checkpoints.load_newest());
    }
    EXPECT_EQ(trainer.steps_done(), first);
    while (trainer.steps_done() < last) trainer.step();
    if (before_save) before_save(trainer);
    EXPECT_TRUE(checkpoints.save());
    EXPECT_TRUE(checkpoints.finish());
    if (after_save) after_save(trainer);
    for (size_t i = 0; i < trainer.part().weights().size(); ++i) {
      const torch::Tensor weight = trainer.weight(i).clone();
      if (world.rank() == 0) weights.push_back(weight);
    }
  });
  return weights;
}

}  // namespace trireme
