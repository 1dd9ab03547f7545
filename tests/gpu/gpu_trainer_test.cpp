// Training on a GPU against training on the CPU: the same losses, with and without a captured graph, from config alone.
#include <gtest/gtest.h>

#include "numerics/skipped_steps.h"
#include "numerics/training.h"
#include "trireme/gpu/device.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

std::vector<double> losses_of(const std::string& model, const Words& more, int steps) {
  Words words = {"--train.clip=1",   "--train.micro_batch=8", "--train.global_batch=16",
                 "--train.leaves=2", "--train.steps=200",     "--optimizer.lr=3e-4"};
  if (model != "mlp")
    words.insert(words.end(), {"--model.hidden=64", "--model.seq=64", "--data.generated_size=200000"});
  words.insert(words.end(), more.begin(), more.end());
  return train(config_of(model, words), 1, steps).losses;
}

class GpuTrainer : public testing::Test {
 protected:
  void SetUp() override {
    if (!gpu::survey().usable()) GTEST_SKIP() << "no GPU: not run (" << gpu::survey().problem << ")";
  }

  /// Trainings that differ in the last bits part ways in the end, the sooner the larger the learning rate: here it is
  /// an ordinary one, and the bounds hold for 200 steps.
  static void expect_close(const std::vector<double>& a, const std::vector<double>& b, double bound) {
    size_t worst = 0;
    const auto distance = [&](size_t i) { return std::abs(a[i] - b[i]) / std::abs(b[i]); };
    for (size_t i = 0; i < a.size(); ++i) worst = distance(i) > distance(worst) ? i : worst;
    EXPECT_LE(distance(worst), bound) << "step " << worst << ": " << a[worst] << " and " << b[worst];
  }
};

TEST_F(GpuTrainer, Float32LossesAreThoseOfTheCpu) {
  for (const char* model : {"gpt2", "llama", "mlp"}) {
    expect_close(losses_of(model, {"--train.device=cuda"}, 200), losses_of(model, {}, 200), 1e-4);
  }
}

TEST_F(GpuTrainer, Bfloat16LossesFollowFloat32) {
  for (const char* model : {"gpt2", "llama"}) {
    const auto full = losses_of(model, {"--train.device=cuda"}, 200);
    const auto half = losses_of(model, {"--train.device=cuda", "--precision.compute=bfloat16"}, 200);
    expect_close(half, full, 0.01);
  }
}

TEST_F(GpuTrainer, AGraphChangesNoBit) {
  for (const std::string type : {"float32", "bfloat16", "float16"}) {
    const std::string compute = "--precision.compute=" + type;
    EXPECT_EQ(losses_of("gpt2", {"--train.device=cuda", compute, "--train.graph=false"}, 12),
              losses_of("gpt2", {"--train.device=cuda", compute}, 12))
        << type;
  }
}

TEST_F(GpuTrainer, BitsRepeat) {
  for (const char* model : {"gpt2", "llama"}) {
    const Words words = {"--train.device=cuda", "--precision.compute=bfloat16"};
    EXPECT_EQ(losses_of(model, words, 30), losses_of(model, words, 30)) << model;
  }
}

TEST_F(GpuTrainer, RecomputationChangesNoBit) {
  for (const char* model : {"gpt2", "llama", "mlp"}) {
    for (const std::string more : {"--train.graph=true", "--train.graph=false", "--model.dropout=0.1"}) {
      const Words words = {"--train.device=cuda", "--precision.compute=bfloat16", more};
      const auto kept = losses_of(model, words, 8);
      for (const std::string way : {"full", "selective", "1"}) {
        if (way == "selective" && model == std::string("mlp")) continue;
        Words again = words;
        again.push_back("--train.recompute=" + way);
        EXPECT_EQ(losses_of(model, again, 8), kept) << model << " " << more << " " << way;
      }
    }
  }
}

TEST_F(GpuTrainer, StepsThatAreSkippedAreNoneOfAdams) {
  for (const char* graph : {"--train.graph=false", "--train.graph=true"}) {
    expect_first_update_is_adams(overflowing({"--train.device=cuda", graph}));
  }
}

TEST_F(GpuTrainer, AccumulationRepeats) {
  const Words words = {"--train.device=cuda", "--precision.compute=bfloat16", "--train.micro_batch=2"};
  EXPECT_EQ(losses_of("gpt2", words, 10), losses_of("gpt2", words, 10));
}

}  // namespace
}  // namespace trireme
