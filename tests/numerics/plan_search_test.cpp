// The whole planner: what it chooses, what it says, what it refuses.
// ctest: timeout=300
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <regex>

#include "trireme/base/error.h"
#include "trireme/config/check.h"
#include "trireme/config/pipeline.h"
#include "trireme/config/resolve.h"
#include "trireme/plan/config_job.h"
#include "trireme/plan/search.h"

namespace trireme {
namespace {

Config config_of(const std::vector<std::string>& words) {
  ConfigSources sources;
  sources.arguments = words;
  sources.default_preset = "";
  return resolve(sources);
}

Config gpt(int layers, int hidden, int batch, std::vector<std::string> more = {}) {
  more.insert(more.end(),
              {"--model.kind=gpt2", "--model.layers=" + std::to_string(layers),
               "--model.hidden=" + std::to_string(hidden), "--model.heads=32", "--model.seq=1024",
               "--model.vocab=51200", "--train.global_batch=" + std::to_string(batch), "--precision.compute=float16"});
  return config_of(more);
}

TEST(Plan, IsWhatTheSimulatorSaysOfIt) {
  const Config config = gpt(24, 2048, 1024);
  const Cluster cluster = find_cluster("v100-16gb");
  const PlanReport report = explain_plan(config, cluster, 8, {.explain = false});
  Config planned = config;
  apply_plan(report.plan, planned);
  const Simulation again = simulate(job_of(planned, trireme_on(cluster)), cluster);
  EXPECT_DOUBLE_EQ(again.step_seconds, report.plan.predicted.step_seconds);
  EXPECT_DOUBLE_EQ(again.memory_bytes(), report.plan.predicted.memory_bytes_per_gpu);
  EXPECT_TRUE(report.plan.predicted.fits);
  EXPECT_EQ(report.plan.world_size, 8);
}

TEST(Mix, FasterDevicesGetMoreOfTheBatch) {
  const Config config = gpt(12, 1024, 96, {"--train.micro_batch=1"});
  const std::vector<Cluster> kinds = find_clusters("h100-80gb+a100-80gb");
  const PlanReport report = explain_plan(config, kinds, 8, {.explain = false});
  const PlanReport slow = explain_plan(config, in_mix(kinds[1], 8, 2), 8, {.explain = false});
  EXPECT_EQ(report.plan.cluster, "h100-80gb+a100-80gb");
  ASSERT_FALSE(report.plan.layout.batch_parts.empty());
  EXPECT_LT(report.plan.predicted.step_seconds, 0.95 * slow.plan.predicted.step_seconds);
  // The trainer can run it, and the simulator says the same of its keys.
  Config planned = config;
  apply_plan(plan_from_json(plan_to_json(report.plan), "plan.json"), planned);
  EXPECT_NO_THROW(check(planned, 8));
  EXPECT_DOUBLE_EQ(simulate_mix(job_of(planned, trireme_on(kinds[0])), kinds).step_seconds,
                   report.plan.predicted.step_seconds);
  // No other division of the batch between the two kinds is faster.
  Job job = job_of(planned, trireme_on(kinds[0]));
  const int64_t half = job.layout.dp / 2, all = config.train.global_batch / half;
  for (int64_t first = 1; first < all; ++first) {
    job.layout.batch_parts.assign(static_cast<size_t>(job.layout.dp), all - first);
    std::fill_n(job.layout.batch_parts.begin(), half, first);
    EXPECT_GE(simulate_mix(job, kinds).step_seconds, report.plan.predicted.step_seconds) << first;
  }
  EXPECT_THROW(explain_plan(config, kinds, 7), UsageError);
}

TEST(Plan, GoesToAFileAndBack) {
  const Config config = gpt(24, 2048, 256);
  const Plan plan = make_plan(config, find_cluster("v100-16gb"), 16);
  const std::string text = plan_to_json(plan);
  const Plan again = plan_from_json(text, "plan.json");
  EXPECT_EQ(plan_to_json(again), text);
  check_plan(again, config, 16);
  EXPECT_FALSE(again.stages[0].placements.empty());
}

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(Plan, OfOthersIsRefused) {
  const Config config = gpt(8, 1024, 64, {"--parallel.pp=2", "--parallel.schedule=1f1b"});
  const Plan plan = make_plan(config, find_cluster("a100-80gb"), 4);
  const auto check = [&](const Config& other, int64_t world) {
    return refusal([&] { check_plan(plan, other, world); });
  };
  EXPECT_NE(check(config, 8).find("for 4 workers, and there are 8"), std::string::npos);
  EXPECT_NE(check(gpt(9, 1024, 64), 4).find("model.layers = 8 there, 9 here"), std::string::npos);
  EXPECT_NE(check(gpt(8, 1024, 128), 4).find("train.global_batch = 64"), std::string::npos);

  const std::string text = plan_to_json(plan);
  const auto read = [&](const std::string& changed) { return refusal([&] { plan_from_json(changed, "my.json"); }); };
  EXPECT_EQ(read(text), "nothing");
  EXPECT_NE(read("{").find("my.json is no plan: it is no JSON: line 1, column 2"), std::string::npos);
  EXPECT_NE(read(replaced(text, "\"parallel.tp\"", "\"parallel.tq\"")).find("\"parallel.tp\" of \"keys\" is missing"),
            std::string::npos);
  EXPECT_NE(read(replaced(text, "\"cluster\":", "\"world\": 3, \"cluster\":")).find("\"world\" is unknown"),
            std::string::npos);
  EXPECT_NE(read(replaced(text, "\"layers\": \"0-", "\"layers\": \"1-")).find("layers 0-0 have no stage"),
            std::string::npos);
  EXPECT_NE(read(replaced(text, "\"world_size\": 4", "\"world_size\": 5")).find("\"world_size\" is 5"),
            std::string::npos);
  EXPECT_NE(
      read(replaced(text, "\"parallel.zero\": ", "\"parallel.zero\": \"x\", \"y\": ")).find("must be a whole number"),
      std::string::npos);
}

TEST(Plan, KeepsTheKeysThatAreGiven) {
  const Config config =
      gpt(24, 2048, 256, {"--parallel.tp=2", "--parallel.pp=2", "--train.micro_batch=2", "--parallel.zero=1"});
  const Plan plan = make_plan(config, find_cluster("a100-80gb"), 16);
  EXPECT_EQ(plan.layout.tp, 2);
  EXPECT_EQ(plan.layout.pp, 2);
  EXPECT_EQ(plan.layout.dp, 4);
  EXPECT_EQ(plan.layout.micro_batch, 2);
  EXPECT_EQ(plan.layout.zero, 1);
}

TEST(Plan, KeepsTensorsInsideHostsAndSendsStagesAcross) {
  // Too large for a host, with a thin network: 39 billion parameters on hosts of 8 A100.
  Cluster cluster = find_cluster("a100-80gb");
  cluster.between.bandwidth = 6e9;
  const Plan plan = make_plan(gpt(48, 8192, 512), cluster, 32);
  EXPECT_GT(plan.layout.pp, 1);
  EXPECT_LE(plan.layout.tp, 8);
  EXPECT_EQ(32 % (plan.layout.tp * plan.layout.dp), 0);
  EXPECT_LE(plan.layout.tp * plan.layout.dp, 8) << "what sums inside a step stays inside a host";
  // The same network everywhere: nothing speaks for stages any more.
  Cluster one = cluster;
  one.devices_per_host = 32;
  const Plan flat = make_plan(gpt(48, 8192, 512), one, 32);
  EXPECT_LE(flat.predicted.step_seconds, plan.predicted.step_seconds);
}

TEST(Plan, SmallModelsAreReplicated) {
  const Plan plan = make_plan(gpt(4, 1024, 256), find_cluster("h100-80gb"), 8);
  EXPECT_EQ(plan.layout.dp, 8);
  EXPECT_EQ(plan.layout.tp, 1);
  EXPECT_EQ(plan.layout.pp, 1);
}

TEST(Plan, SaysWhatWouldFit) {
  const Config config = gpt(96, 12288, 64);
  const std::string words = refusal([&] { make_plan(config, find_cluster("v100-16gb"), 8); });
  EXPECT_NE(words.find("fit into no layout of 8 x V100"), std::string::npos) << words;
  EXPECT_NE(words.find("GB more than the 17.2 GB there are"), std::string::npos) << words;
  EXPECT_NE(words.find("would fit: "), std::string::npos) << words;
  const std::string odd =
      refusal([&] { make_plan(gpt(4, 1024, 7, {"--parallel.tp=1"}), find_cluster("v100-16gb"), 13); });
  EXPECT_NE(odd.find("13 devices"), std::string::npos) << odd;
}

TEST(Plan, LessMemoryIsNeverFaster) {
  const Config config = gpt(24, 4096, 256);
  const Cluster cluster = find_cluster("a100-80gb");
  double last = 0;
  for (const double gigabytes : {80.0, 40.0, 20.0, 12.0}) {
    const Plan plan = make_plan(config, cluster, 16, {.memory_limit_bytes = gigabytes * 1e9});
    EXPECT_LE(plan.predicted.memory_bytes_per_gpu, gigabytes * 1e9);
    EXPECT_GE(plan.predicted.step_seconds, last * 0.994);  // simpler layouts may win by half a percent
    last = plan.predicted.step_seconds;
  }
}

TEST(Plan, OnlyStagesThatMustComputeAgain) {
  // The first of four stages holds four micro-batches, the last one.
  const std::vector<std::string> given = {"--parallel.pp=4", "--parallel.dp=1", "--parallel.tp=1",
                                          "--parallel.schedule=1f1b", "--train.micro_batch=8"};
  const Config config = gpt(24, 2048, 256, given);
  Cluster cluster = find_cluster("h100-80gb");
  cluster.device.memory_bytes = 16e9;
  const Plan plan = make_plan(config, cluster, 4);
  const Recompute again = plan.layout.recompute;
  ASSERT_FALSE(again.ranges.empty()) << plan.layout_text();
  EXPECT_NE(plan.layout_text().find("blocks 0-"), std::string::npos) << plan.layout_text();
  for (size_t s = 0; s < 4; ++s) {
    const LayerRange& layers = plan.stages[s].layers;  // the embedding is layer 0, blocks count from 0
    const int first = std::max(0, layers.first - 1), last = std::min(23, layers.last - 2);
    for (int block = first; block <= last; ++block)
      EXPECT_EQ(again.covers(block), again.covers(first)) << "stage " << s;
  }
  EXPECT_TRUE(again.covers(0));
  EXPECT_FALSE(again.covers(23));
  // It is what the simulator says of these keys, and fits where nothing computed again does not.
  Config planned = config;
  apply_plan(plan, planned);
  const Simulation simulation = simulate(job_of(planned, trireme_on(cluster)), cluster);
  EXPECT_DOUBLE_EQ(simulation.step_seconds, plan.predicted.step_seconds);
  EXPECT_TRUE(simulation.fits());
  planned.train.recompute = "none";
  EXPECT_FALSE(simulate(job_of(planned, Software::kPublished), cluster).fits());
  // With one kind for all stages nothing is as fast.
  for (const char* one : {"full", "selective"}) {
    std::vector<std::string> words = given;
    words.push_back(std::string("--train.recompute=") + one);
    try {
      EXPECT_GT(make_plan(gpt(24, 2048, 256, words), cluster, 4).predicted.step_seconds,
                1.01 * plan.predicted.step_seconds)
          << one;
    } catch (const Error&) {  // it does not fit
    }
  }
  // More memory than any stage needs: nothing is computed again.
  EXPECT_EQ(make_plan(config, cluster, 4, {.memory_limit_bytes = 80e9}).layout.recompute, RecomputeKind::kNone);
}

TEST(Plan, ImagesAndPerceptronsAreCut) {
  for (const char* kind : {"mlp", "resnet"}) {
    std::vector<std::string> words = {std::string("--model.kind=") + kind,
                                      "--model.layers=6",
                                      "--model.hidden=2048",
                                      "--model.depth=50",
                                      "--model.image=64",
                                      "--model.channels=3",
                                      "--train.global_batch=64"};
    const Config config = config_of(words);
    for (const int devices : {1, 2, 4}) {
      const Plan plan = make_plan(config, find_cluster("laptop"), devices);
      EXPECT_EQ(plan_from_json(plan_to_json(plan), "x"), plan_from_json(plan_to_json(plan), "y"));
      EXPECT_EQ(plan.layout.dp * plan.layout.tp * plan.layout.pp, devices);
    }
    // The trainer cuts where the plan does.
    words.push_back("--parallel.pp=4");
    Config staged = config_of(words);
    const Plan plan = make_plan(staged, find_cluster("laptop"), 4);
    apply_plan(plan, staged);
    check(staged, 4);
    const Partition split = pipeline_split(staged, 4, num_layers(staged.model));
    ASSERT_EQ(split.size(), plan.stages.size()) << kind;
    for (size_t i = 0; i < split.size(); ++i) EXPECT_EQ(split[i], plan.stages[i].layers) << kind;
    EXPECT_DOUBLE_EQ(simulate(job_of(staged, trireme_on(find_cluster("laptop"))), find_cluster("laptop")).step_seconds,
                     plan.predicted.step_seconds);
  }
}

// 16 samples and 64 channels cannot be shared by three alike.
TEST(Plan, ConvolutionsMayHaveStagesOfDifferentShapes) {
  const Config given = config_of(
      {"--model.kind=resnet", "--model.depth=18", "--model.image=28", "--model.channels=1", "--train.global_batch=16"});
  const Plan plan = make_plan(given, find_cluster("laptop"), 3, {.uneven = true});
  EXPECT_LE(plan.predicted.step_seconds, make_plan(given, find_cluster("laptop"), 3).predicted.step_seconds);
  ASSERT_TRUE(plan.has_uneven_stages()) << plan.layout_text();
  Config config = given;
  apply_plan(plan, config);
  EXPECT_EQ(check(config, 3).dp, plan.layout.dp);
}

TEST(Plan, StagesOfDifferentShapesAreFoundAndApplied) {
  const Config given = gpt(8, 1024, 64);
  const Cluster cluster = find_cluster("a100-80gb");
  const Plan plan = make_plan(given, cluster, 7, {.uneven = true});
  ASSERT_TRUE(plan.has_uneven_stages()) << plan.layout_text();
  EXPECT_LT(plan.predicted.step_seconds, make_plan(given, cluster, 7).predicted.step_seconds);
  const std::string text = plan_to_json(plan);
  EXPECT_EQ(plan_from_json(text, "x"), plan);
  Config config = given;
  apply_plan(plan, config);
  EXPECT_EQ(config.parallel.stages, stages_to_text(plan.layout.stages));
  EXPECT_EQ(check(config, 7).dp, plan.layout.dp);

  const auto edited = [&](auto edit) {
    Plan wrong = plan;
    edit(wrong);
    return refusal([&] { plan_from_json(plan_to_json(wrong), "plan.json"); });
  };
  EXPECT_NE(edited([](Plan& p) {
              p.layout.stages = {{1, 1}, {1, 1}};
            }).find("its key parallel.stages is \"1x1,1x1\""),
            std::string::npos);
  EXPECT_NE(edited([](Plan& p) { p.layout.dp *= 3; }).find("lanes"), std::string::npos);
  for (const int64_t layers : {int64_t{1} << 31, std::numeric_limits<int64_t>::max()}) {
    EXPECT_NE(edited([&](Plan& p) { p.model.layers = layers; }).find("the model with layer 2147483646"),
              std::string::npos)
        << layers;
  }
  const std::string other =
      std::regex_replace(text, std::regex(R"("parallel.split": "[^"]*")"), R"("parallel.split": "5,5")");
  EXPECT_NE(refusal([&] { plan_from_json(other, "plan.json"); }).find("its key parallel.split is \"5,5\""),
            std::string::npos);
  EXPECT_NE(edited([](Plan& p) {
              p.stages[0].dp = 7;
              p.stages[0].tp = 7905747460161236407;  // 7 times that is 1, for who does not look
            }).find("dp 7 x tp 7905747460161236407"),
            std::string::npos);

  Plan alike = make_plan(given, cluster, 4);
  std::string older = plan_to_json(alike);
  const size_t line = older.find("    \"parallel.stages\"");
  older.erase(line, older.find('\n', line) + 1 - line);
  EXPECT_EQ(plan_from_json(older, "before there were shapes"), alike);
  alike.layout.stages = {{2, 1}, {2, 1}};
  EXPECT_NE(refusal([&] { plan_from_json(plan_to_json(alike), "x"); }).find("its stages are alike"), std::string::npos);
}

TEST(Plan, GivenLeavesStay) {
  for (const int leaves : {4, 16, 64}) {
    Config config = gpt(8, 1024, 64, {"--precision.compute=float32", fmt::format("--train.leaves={}", leaves)});
    const Plan plan = make_plan(config, find_cluster("a100-80gb"), 4);
    EXPECT_EQ(plan.layout.leaves, leaves);
    apply_plan(plan, config);
    EXPECT_NO_THROW(check(config, 4)) << leaves;
  }
}

TEST(Plan, GivenSplitsStay) {
  const Plan plan = make_plan(gpt(8, 1024, 64, {"--parallel.split=3,7"}), find_cluster("a100-80gb"), 4);
  EXPECT_EQ(partition_to_text(plan.layout.split), "0-2,3-9");
  EXPECT_EQ(plan.layout.pp, 2);
  EXPECT_EQ(plan.layout.interleave, 1);
}

/// With the trainer's types. What the trainer then holds: ZeroMemoryOfPlans in zero_memory_test.cpp.
TEST(Plan, CountsWhatTheSimulatorCounts) {
  const Cluster cluster = find_cluster("h100-80gb");
  const Config config = gpt(24, 2048, 64, {"--precision.compute=bfloat16"});
  Config planned = config;
  apply_plan(make_plan(config, cluster, 8), planned);
  Job job = job_of(planned, trireme_on(cluster));
  EXPECT_TRUE(job.layout.float32_gradients);
  EXPECT_DOUBLE_EQ(simulate(job, cluster).memory_bytes(), make_plan(config, cluster, 8).predicted.memory_bytes_per_gpu);

  const Plan some = make_plan(gpt(8, 1024, 64, {"--parallel.pp=2", "--train.recompute=0-3"}), cluster, 4);
  EXPECT_NE(some.layout.schedule, ScheduleKind::kZbH1) << "which does not compute some blocks again";
  const Plan scaled = make_plan(gpt(8, 1024, 64, {"--precision.compute=float16"}), find_cluster("v100-16gb"), 16,
                                {.compression = true});
  EXPECT_EQ(scaled.layout.compression, Method::kNone);
}

/// Three devices do not divide a batch of 64, nor heads, nor two blocks.
TEST(Plan, StagesDifferInShapeWhereNoOthersCanBe) {
  const Config given = gpt(2, 1024, 64);
  const Cluster cluster = find_cluster("a100-80gb");
  const Plan plan = make_plan(given, cluster, 3);
  ASSERT_TRUE(plan.has_uneven_stages()) << plan.layout_text();
  Config config = given;
  apply_plan(plan, config);
  EXPECT_EQ(check(config, 3).dp, plan.layout.dp);
  EXPECT_GT(plan.predicted.step_seconds, make_plan(given, cluster, 4).predicted.step_seconds);
  EXPECT_NE(refusal([&] {
              make_plan(gpt(2, 1024, 64, {"--parallel.tp=1"}), cluster, 3);
            }).find("parallel.tp = 1 (from the command line) leaves"),
            std::string::npos);
}

/// What somebody has given stays, so there is less to find.
TEST(Plan, StagesOfDifferentShapesLeaveGivenKeysAlone) {
  const Cluster cluster = find_cluster("a100-80gb");
  for (const char* key : {"--parallel.pp=7", "--parallel.schedule=1f1b"}) {
    const Plan plan = make_plan(gpt(8, 1024, 64, {key}), cluster, 7, {.uneven = true});
    EXPECT_FALSE(plan.has_uneven_stages()) << key << ": " << plan.layout_text();
  }
  for (const int64_t samples : {1, 2, 4, 8}) {
    const Config config = gpt(8, 1024, 64, {fmt::format("--train.micro_batch={}", samples)});
    EXPECT_EQ(make_plan(config, cluster, 7, {.uneven = true}).layout.micro_batch, samples);
  }
}

}  // namespace
}  // namespace trireme
