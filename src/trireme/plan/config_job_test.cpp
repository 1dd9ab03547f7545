#include "trireme/plan/config_job.h"

#include <gtest/gtest.h>

#include "trireme/config/check.h"
#include "trireme/config/resolve.h"
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

// The trainer's programs follow from step_shape(), the simulator's from the job; groups of gradients are not compared.
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

// Whoever simulates other software has replicas without end: two of them stand for all.
TEST(ConfigJob, FoldsReplicasThatTheTrainerCouldNotHave) {
  const Config config = config_of({"--parallel.dp=48", "--parallel.pp=2"});
  const Simulation simulation = simulate(job_of(config, Software::kPublished), find_cluster("a100-80gb"));
  EXPECT_EQ(simulation.shape.pipeline.num_replicas, 2);
  EXPECT_EQ(simulation.programs.size(), 2u);
}

}  // namespace
}  // namespace trireme
