// ctest: timeout=600
// Pipelines whose stages differ in shape, against a single worker: replicas change no bit, whatever their numbers;
// tensor parallelism stays in its bounds.
#include "trireme/config/stages.h"

#include <gtest/gtest.h>

#include <fstream>

#include "numerics/pipeline_cases.h"
#include "trireme/base/error.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

Config with_stages(const std::string& model, const std::string& stages, Words more = {}) {
  more.push_back("--parallel.stages=" + stages);
  return pipeline_config(model, more);
}

Outcome train_stages(const std::string& model, const std::string& stages, const Words& more = {}, int steps = 3) {
  const Config config = with_stages(model, stages, more);
  return train(config, static_cast<int>(num_workers(stage_degrees(config))), steps, /*evaluates=*/true);
}

void expect_same(const Outcome& a, const Outcome& b, const std::string& what) {
  expect_equal(a, b, what);
  EXPECT_EQ(a.evaluation.loss, b.evaluation.loss) << what;
  EXPECT_EQ(a.evaluation.accuracy, b.evaluation.accuracy) << what;
}

void expect_same_as_one_worker(const std::string& model, const std::vector<std::string>& layouts,
                               const Words& more = {}) {
  const Outcome alone = train(pipeline_config(model, more), 1, 3, /*evaluates=*/true);
  for (const std::string& stages : layouts) expect_same(train_stages(model, stages, more), alone, stages);
}

TEST(Stages, ReplicasMayDiffer) {
  expect_same_as_one_worker("gpt2", {"2x1,1x1", "1x1,2x1", "1x1,3x1", "2x1,3x1", "1x1,2x1,1x1", "4x1,1x1,2x1"},
                            {"--model.dropout=0.1", "--train.clip=0.05"});
  expect_same_as_one_worker("llama", {"3x1,1x1", "1x1,2x1"});
}

TEST(Stages, LeavesNeedNotBeBranches) {
  expect_same_as_one_worker("gpt2", {"1x1,2x1", "2x1,1x1", "6x1,2x1", "1x1,3x1"},
                            {"--train.leaves=6", "--train.global_batch=12"});
  expect_same_as_one_worker("mlp", {"2x1,1x1,1x1"}, {"--train.leaves=12"});
}

TEST(Stages, AnyScheduleWithOneStageAWorker) {
  const Outcome alone = train(pipeline_config("gpt2", {}), 1, 3, true);
  for (const ScheduleKind kind : schedule_kinds()) {
    if (!is_synchronous(kind) || stages_per_rank(kind) > 1) continue;
    const std::string schedule(name_of(kind));
    expect_same(train_stages("gpt2", "2x1,1x1,2x1", {"--parallel.schedule=" + schedule}), alone, schedule);
  }
  for (const char* recompute : {"full", "selective", "0-2"}) {
    expect_same(train_stages("gpt2", "1x1,2x1", {std::string("--train.recompute=") + recompute}), alone, recompute);
  }
}

TEST(Stages, StatisticsOfBatchNorm) { expect_same_as_one_worker("resnet", {"2x1,1x1"}); }

TEST(Stages, ShortTypesAndClipping) {
  for (const char* type : {"bfloat16", "float16"}) {
    expect_same_as_one_worker("gpt2", {"1x1,2x1"}, {std::string("--precision.compute=") + type, "--train.clip=0.01"});
  }
}

TEST(Stages, ReplicasOfAStageShard) {
  const Outcome alone = train(pipeline_config("gpt2", {}), 1, 3, true);
  for (const char* zero : {"1", "2", "3"}) {
    for (const char* stages : {"2x1,1x1", "2x1,3x1"}) {  // tied weights between stages of which all, or one, share
      expect_same(train_stages("gpt2", stages, {std::string("--parallel.zero=") + zero}), alone,
                  std::string(stages) + ", zero " + zero);
    }
  }
  expect_same(train_stages("gpt2", "1x1,2x1", {"--parallel.zero=3"}), alone, "1x1,2x1, zero 3");
}

/// Of which only some gather weights before each pass, and replicas that do not divide each other.
TEST(Stages, EvaluationOfAnyNumberOfBlocks) {
  for (const int length : {700, 900, 1300}) {  // held out: a twentieth, few samples of 12 bytes
    const std::string path = fmt::format("{}stages-{}.txt", testing::TempDir(), length);
    std::ofstream(path) << std::string(static_cast<size_t>(length), 'a');
    const Words words = {"--parallel.zero=3", "--data.path=" + path};
    const Outcome alone = train(pipeline_config("gpt2", words), 1, 1, true);
    EXPECT_NE(alone.evaluation.num_samples % 6, 0) << alone.evaluation.num_samples;
    for (const char* stages : {"2x1,1x1", "1x1,2x1", "2x1,3x1", "3x1,2x1,1x1"}) {
      expect_same(train_stages("gpt2", stages, words, 1), alone, stages);
    }
  }
}

/// Each update as with replicas in every stage. How late a gradient is depends on the cut, so that is given.
TEST(Stages, UpdatesWhileMicroBatchesAreUnderWay) {
  for (const char* schedule : {"pipedream", "pipedream-2bw"}) {
    const Words words = {std::string("--parallel.schedule=") + schedule, "--model.tied=false", "--train.clip=0",
                         "--parallel.split=4,5"};
    Words alike = words;
    alike.insert(alike.end(), {"--parallel.pp=2", "--parallel.dp=2"});
    const Outcome expected = train(pipeline_config("gpt2", alike), 4, 3, true);
    expect_same(train_stages("gpt2", "2x1,1x1", words), expected, schedule);
    expect_same(train_stages("gpt2", "1x1,2x1", words), expected, schedule);
  }
}

/// What lies between stages goes another way than in a plain pipeline; nothing else may differ.
TEST(Stages, ReplicasOfCutStagesMayDiffer) {
  for (const char* sequence : {"false", "true"}) {
    const Words words = {"--model.heads=4", std::string("--parallel.sequence=") + sequence};
    Words plain = words;
    plain.push_back("--parallel.tp=2");
    const Outcome expected = train(pipeline_config("gpt2", plain), 2, 3, true);
    expect_same(train_stages("gpt2", "1x2,1x2", words), expected, "1x2,1x2");
    expect_same(train_stages("gpt2", "2x2,1x2", words), expected, "2x2,1x2");
    expect_same(train_stages("gpt2", "1x2,2x2", words), expected, "1x2,2x2");
  }
}

void expect_near_one_worker(const std::string& model, const std::vector<std::string>& layouts, const Words& more) {
  Words alone_words = model == "mlp" ? Words{} : Words{"--model.heads=4"};
  const Outcome alone = train(pipeline_config(model, alone_words), 1, 3, true);
  for (const std::string& stages : layouts) {
    for (const std::string& word : more) {
      SCOPED_TRACE(fmt::format("{}, {}, {}", model, stages, word));
      Words words = alone_words;
      words.push_back(word);
      const Outcome outcome = train_stages(model, stages, words);
      for (size_t i = 0; i < alone.losses.size(); ++i) {
        EXPECT_NEAR(outcome.losses[i], alone.losses[i], 1e-5 * alone.losses[i]);
        EXPECT_NEAR(outcome.norms[i], alone.norms[i], 1e-4 * alone.norms[i]);
      }
      EXPECT_NEAR(outcome.evaluation.loss, alone.evaluation.loss, 1e-5 * alone.evaluation.loss);
      EXPECT_LT(largest_difference(outcome, alone), 1e-3);
    }
  }
}

TEST(Stages, CutsMayDiffer) {
  const Words all = {"--parallel.sequence=false", "--parallel.sequence=true", "--parallel.zero=1", "--parallel.zero=3"};
  expect_near_one_worker("gpt2", {"1x2,1x1", "2x1,1x2"}, all);
  expect_near_one_worker("gpt2", {"1x1,1x2", "1x2,1x1,1x4", "2x2,1x1"}, {all[1]});
  expect_near_one_worker("llama", {"1x1,1x2", "1x4,2x1"}, {all[0]});
  expect_near_one_worker("mlp", {"1x2,1x1", "2x1,1x2"}, {all[0]});
}

/// Sums are asked for with texts of any length.
TEST(Stages, PredictionsOfAnyLength) {
  const torch::Tensor text = torch::arange(7).view({1, 7});
  const auto predict = [&](const Config& config, int workers) {
    const OpenedData data = open_data(data_options_of(config));
    std::vector<torch::Tensor> logits(static_cast<size_t>(workers));
    run_as_threads(workers, [&](World& world) {
      Trainer trainer(world, build_model(config), config, data);
      logits[static_cast<size_t>(world.rank())] = trainer.predict(text);
    });
    return logits;
  };
  const Words heads = {"--model.heads=4", "--parallel.sequence=true"};
  const torch::Tensor alone = predict(pipeline_config("gpt2", {heads[0]}), 1)[0];
  for (const char* stages : {"1x2,1x1", "1x1,1x2", "2x1,1x4"}) {
    const Config config = with_stages("gpt2", stages, heads);
    for (const torch::Tensor& logits : predict(config, static_cast<int>(num_workers(stage_degrees(config))))) {
      EXPECT_TRUE(torch::allclose(logits, alone, 1e-4, 1e-5)) << stages;
    }
  }
}

TEST(Stages, MistakesAreFoundBeforeAnythingRuns) {
  const auto fails = [](const std::string& stages, int workers, const Words& more, const std::string& why) {
    try {
      train(with_stages("gpt2", stages, more), workers, 1);
      ADD_FAILURE() << stages << " was not refused: " << why;
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
    }
  };
  fails("2x1,1x1", 4, {}, "needs 3 workers, but there are 4");
  fails("2x1,1", 3, {}, "\"1\" is no shape of a stage");
  fails("2x0,1x1", 3, {}, "is no shape of a stage");
  fails("2x1,1x1", 3, {"--parallel.pp=3"}, "are 2 stages, but parallel.pp = 3");
  fails("1x2,1x1", 3, {"--parallel.tp=2"}, "parallel.tp = 2");
  fails("2x1,1x1", 3, {"--parallel.dp=3"}, "parallel.dp = 3");
  fails("2x1,1x1", 3, {"--parallel.schedule=interleaved"}, "interleaved");
  fails("2x1,1x1", 3, {"--parallel.aggregation=server"}, "server");
  fails("2x1,1x1", 3, {"--compression.method=topk"}, "topk");
  fails("1x3,1x1", 4, {}, "model.heads = 2 cannot be split over tp of stage 0 (parallel.stages) = 3");
  fails("5x1,1x1", 6, {}, "5 lanes");
}

}  // namespace
}  // namespace trireme
