// Pipelines against a single worker: not a bit differs, whatever the schedule. A sample; pipeline_many_test has all.
#include <gtest/gtest.h>

#include "numerics/pipeline_cases.h"
#include "trireme/base/error.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

TEST(Pipeline, Gpt2) {
  expect_equal_in_pipelines("gpt2",
                            {{"1f1b", 2}, {"gpipe", 3}, {"zb-v", 4}, {"zb-h2", 2, 2}, {"interleaved", 2, 1, "full"}}, 3,
                            {"--model.dropout=0.1"});
}

TEST(Pipeline, Llama) {
  expect_equal_in_pipelines("llama", {{"zb-h1", 3}, {"naive", 2, 1, "selective"}, {"1f1b", 4, 2, "full"}}, 3);
}

TEST(Pipeline, Mlp) {
  expect_equal_in_pipelines("mlp", {{"pipedream-flush", 4}, {"zb-h1", 2, 3, "full"}}, 3, {"--model.dropout=0.2"});
}

TEST(Pipeline, ResNetAndItsStatistics) {
  expect_equal_in_pipelines("resnet", {{"1f1b", 3}, {"zb-v", 2, 1, "full"}, {"gpipe", 2, 2}}, 2);
}

TEST(Pipeline, ShortTypesAndClipping) {
  for (const char* type : {"bfloat16", "float16"}) {
    expect_equal_in_pipelines("gpt2", {{"1f1b", 2}, {"zb-h1", 3, 2}}, 3,
                              {std::string("--precision.compute=") + type, "--train.clip=0.01"});
  }
}

TEST(Pipeline, FewerMicroBatchesThanStages) {
  expect_equal_in_pipelines("gpt2", {{"1f1b", 4}, {"zb-h2", 4}}, 2, {"--train.global_batch=2", "--train.leaves=2"});
}

TEST(Pipeline, AnySplitGivesTheSameBits) {
  for (const char* split : {"1,8", "8,1", "0-4,5-8"}) {
    const Outcome alone = train(pipeline_config("gpt2", {}), 1, 2);
    expect_equal(
        train(pipeline_config("gpt2", {"--parallel.pp=2", "--parallel.dp=1", std::string("--parallel.split=") + split}),
              2, 2),
        alone, split);
  }
  EXPECT_THROW(train(pipeline_config("gpt2", {"--parallel.pp=2", "--parallel.dp=1", "--parallel.split=3,3,3"}), 2, 1),
               UsageError);
}

TEST(Pipeline, OnTopOfTensorParallelismChangesNoBit) {
  for (const char* sequence : {"false", "true"}) {
    const Words tensor = {"--parallel.tp=2", std::string("--parallel.sequence=") + sequence};
    const auto with = [&](Words words) {
      words.insert(words.end(), tensor.begin(), tensor.end());
      return pipeline_config("gpt2", words);
    };
    const Outcome tp = train(with({"--parallel.dp=1"}), 2, 3, true);
    const Outcome all = train(with({"--parallel.dp=2", "--parallel.pp=2", "--parallel.schedule=zb-h1"}), 8, 3, true);
    expect_equal(all, tp, sequence);
    EXPECT_EQ(all.evaluation.loss, tp.evaluation.loss);
    // And within the bound of tensor parallelism what one worker has.
    const Outcome alone = train(pipeline_config("gpt2", {}), 1, 3);
    for (size_t i = 0; i < alone.losses.size(); ++i)
      EXPECT_NEAR(all.losses[i], alone.losses[i], 1e-5 * alone.losses[i]);
    EXPECT_LT(largest_difference(all, alone), 1e-3);
  }
}

TEST(Pipeline, UnevenSequencesBetweenStages) {
  const Words words = {"--parallel.tp=2", "--parallel.sequence=true", "--model.seq=11"};
  const auto with = [&](Words more) {
    more.insert(more.end(), words.begin(), words.end());
    return pipeline_config("llama", more);
  };
  expect_equal(train(with({"--parallel.dp=1", "--parallel.pp=3"}), 6, 2), train(with({"--parallel.dp=1"}), 2, 2),
               "11 tokens over 2 ranks");
}

TEST(Pipeline, MistakesAreFoundBeforeAnythingRuns) {
  const auto fails = [](const Words& words) {
    EXPECT_THROW(train(pipeline_config("gpt2", words), 2, 1), UsageError) << words.back();
  };
  fails({"--parallel.pp=2", "--parallel.schedule=zb-h1", "--train.recompute=selective"});
  fails({"--parallel.pp=2", "--parallel.schedule=gpipe", "--parallel.interleave=2"});
  fails({"--parallel.pp=2", "--parallel.interleave=5"});
  fails({"--parallel.dp=2", "--parallel.split=4,5"});
}

}  // namespace
}  // namespace trireme
