#include "trireme/plan/config_job.h"

#include <gtest/gtest.h>

#include "trireme/config/check.h"
#include "trireme/config/resolve.h"
#include "trireme/config/value.h"
#include "trireme/simulate/simulate.h"

namespace trireme {
namespace {

using Words = std::vector<std::string>;

Config config_of(const Words& more) {
  ConfigSources sources;
  sources.arguments = {"--model=gpt2-tiny", "--model.tied=false", "--train.clip=0", "--train.micro_batch=1",
                       "--train.global_batch=48"};
  sources.arguments.insert(sources.arguments.end(), more.begin(), more.end());
  return resolve(sources);
}

// Compares the trainer's programs, from step_shape(), with the simulator's; the number of gradient groups is copied.
TEST(ConfigJob, HasTheStepOfTheTrainer) {
  std::vector<Words> layouts = {
      {},
      {"--parallel.dp=4"},
      {"--parallel.dp=6", "--train.leaves=24"},
      {"--parallel.dp=3", "--train.leaves=3", "--parallel.zero=1"},
      {"--parallel.dp=2", "--parallel.zero=2", "--parallel.zero_accumulation=shares"},
      {"--parallel.dp=2", "--parallel.zero=3", "--parallel.zero_keep"},
      {"--parallel.dp=2", "--parallel.aggregation=server"},
      {"--parallel.dp=2", "--parallel.aggregation=server", "--compression.method=int8"},
      {"--parallel.pp=2", "--parallel.dp=2", "--parallel.aggregation=server", "--server.count=3"},
      {"--parallel.dp=2", "--parallel.aggregation=server", "--server.mode=asynchronous"},
      {"--parallel.dp=4", "--parallel.aggregation=server", "--server.mode=bounded", "--server.count=2"},
      {"--parallel.pp=2", "--parallel.dp=2", "--parallel.aggregation=server", "--server.mode=asynchronous"},
      {"--parallel.dp=1", "--parallel.aggregation=server", "--server.mode=asynchronous"},
      {"--parallel.dp=4", "--parallel.aggregation=adasum"},
      {"--parallel.dp=3", "--train.leaves=6", "--parallel.aggregation=adasum"},
      {"--parallel.dp=2", "--compression.method=onebit_adam", "--compression.warmup_steps=10"},
      {"--parallel.dp=4", "--local.method=average", "--local.every=8"},
      {"--parallel.dp=2", "--local.method=diloco", "--local.format=int8"},
      {"--parallel.dp=1", "--local.method=diloco"},
      {"--parallel.schedule=gpipe"},
      {"--parallel.schedule=zb-h1", "--parallel.dp=2"},
      {"--parallel.pp=2"},
      {"--parallel.pp=2", "--parallel.dp=2", "--train.recompute=full", "--parallel.zero=3"},
      {"--parallel.pp=2", "--train.recompute=selective"},
      {"--parallel.pp=2", "--train.recompute=0-1"},
      {"--parallel.pp=2", "--parallel.schedule=gpipe", "--parallel.dp=4", "--parallel.zero=2"},
      {"--parallel.pp=2", "--parallel.schedule=interleaved-1f1b", "--parallel.interleave=2"},
      {"--parallel.pp=2", "--parallel.interleave=2"},
      {"--parallel.pp=2", "--parallel.schedule=pipedream-2bw", "--parallel.update_every=8"},
  };
  for (const ScheduleKind kind : schedule_kinds()) {
    if (depends_on_times(kind)) continue;  // the simulator's order is another one
    for (const char* dp : {"1", "2"}) {
      layouts.push_back(
          {"--parallel.pp=2", std::string("--parallel.dp=") + dp, "--parallel.schedule=" + std::string(name_of(kind))});
    }
  }
  for (const Words& words : layouts) {
    SCOPED_TRACE(words.empty() ? "default" : words.back());
    const Config config = config_of(words);
    const ParallelConfig& parallel = config.parallel;
    const Layout layout = check(config, std::max<int64_t>(1, parallel.dp) * parallel.pp);
    const Simulation simulation = simulate(job_of(config, Software::kTrireme), find_cluster("a100-80gb"));
    StepShape shape = step_shape(layout);
    shape.pipeline.groups = simulation.shape.pipeline.groups;
    EXPECT_EQ(shape, simulation.shape);
    EXPECT_EQ(programs_of(shape, 0), simulation.programs);
  }
}

TEST(ConfigJob, SaysWhatReplicasSendWhereTheyExchangeNoGradients) {
  const auto layout_of = [](const Words& words) { return job_of(config_of(words), Software::kTrireme).layout; };
  EXPECT_EQ(layout_of({"--parallel.dp=4", "--parallel.aggregation=adasum"}).exchange_bytes, 4);
  // Packed blocks of 512 elements have one scale each.
  const Words one_bit = {"--parallel.dp=2", "--compression.method=onebit_adam", "--compression.warmup_steps=10"};
  EXPECT_NEAR(layout_of(one_bit).exchange_bytes, (1 + 32.0 / 512) / 8, 1e-12);
  const Layout average = layout_of({"--parallel.dp=4", "--local.method=average", "--local.every=8"});
  EXPECT_EQ(average.exchange_bytes, 4);
  EXPECT_EQ(average.meet_every, 8);
  const Layout packed = layout_of({"--parallel.dp=4", "--local.method=diloco", "--local.format=int8"});
  EXPECT_NEAR(packed.exchange_bytes, (8 + 32.0 / 512) / 8, 1e-12);
}

// Origins of values are for messages: equal configurations have equal jobs.
TEST(ConfigJob, FollowsFromValuesAlone) {
  for (const Words& words :
       std::vector<Words>{{}, {"--parallel.dp=2", "--parallel.zero=2"}, {"--parallel.overlap=false"}}) {
    const Config config = config_of(words);
    Config given = config;
    for (const Key& key : keys()) set_key(given, key.full_name(), get_value(config, key), "command line");
    ASSERT_EQ(given, config);
    for (const Software software : {Software::kPublished, Software::kTrireme, Software::kMeasured}) {
      EXPECT_EQ(job_of(given, software), job_of(config, software)) << (words.empty() ? "default" : words.back());
    }
  }
}

TEST(ConfigJob, LeavesToTheSoftwareWhatIsAuto) {
  const auto job = [](Words more, Software software) {
    more.insert(more.end(), {"--parallel.dp=2", "--parallel.zero=2"});
    return job_of(config_of(more), software);
  };
  for (const Software software : {Software::kPublished, Software::kTrireme, Software::kMeasured}) {
    EXPECT_EQ(job({}, software).layout.zero_sums_whole, software == Software::kTrireme);
    EXPECT_TRUE(job({"--parallel.zero_accumulation=whole"}, software).layout.zero_sums_whole);
    EXPECT_FALSE(job({"--parallel.zero_accumulation=shares"}, software).layout.zero_sums_whole);
    EXPECT_EQ(job({}, software).overlap, std::nullopt);
    EXPECT_EQ(job({"--parallel.overlap"}, software).overlap, true);
    EXPECT_EQ(job({"--parallel.overlap=false"}, software).overlap, false);
  }
}

// Simulated software may have any number of replicas: two of them represent all.
TEST(ConfigJob, FoldsReplicasThatTheTrainerCouldNotHave) {
  const Config config = config_of({"--parallel.dp=48", "--parallel.pp=2"});
  const Simulation simulation = simulate(job_of(config, Software::kPublished), find_cluster("a100-80gb"));
  EXPECT_EQ(simulation.shape.pipeline.num_replicas, 2);
  EXPECT_EQ(simulation.programs.size(), 2u);
}

}  // namespace
}  // namespace trireme
