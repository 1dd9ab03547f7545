// The programs that trainers execute: the checker proves them as they are, ZeRO's rewriting included; and their groups
// of gradients are those that the simulator counts.
#include <gtest/gtest.h>

#include <algorithm>

#include "numerics/composition_cases.h"
#include "trireme/base/error.h"
#include "trireme/plan/config_job.h"
#include "trireme/program/check/check.h"
#include "trireme/simulate/cluster.h"
#include "trireme/simulate/simulate.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

std::vector<Program> executed_programs(const Config& config, int workers) {
  std::vector<Program> programs(static_cast<size_t>(workers));
  run_as_threads(workers, [&](World& world) {
    const Trainer trainer(world, build_model(config), config, open_data(data_options_of(config)));
    programs[static_cast<size_t>(world.rank())] = trainer.executor().program();
  });
  return programs;
}

bool has(const Program& program, OpCode op) {
  return std::any_of(program.instructions.begin(), program.instructions.end(),
                     [op](const Instruction& i) { return i.op == op; });
}

TEST(ExecutedPrograms, ArePassedByTheChecker) {
  const Words pipeline = {"--parallel.pp=2", "--parallel.dp=2", "--train.recompute=full"};
  for (const bool has_pipeline : {false, true}) {
    for (const Words& zero : std::vector<Words>{{},
                                                {"--parallel.zero=1"},
                                                {"--parallel.zero=2", "--parallel.zero_accumulation=shares"},
                                                {"--parallel.zero=3", "--parallel.zero_keep"},
                                                {"--parallel.zero=3", "--parallel.zero_accumulation=shares"}}) {
      Words words = has_pipeline ? pipeline : Words{"--parallel.dp=3"};
      words.insert(words.end(), zero.begin(), zero.end());
      const Config config = config_of("gpt2", words);
      std::vector<Program> programs = executed_programs(config, has_pipeline ? 4 : 3);
      const int leaves = static_cast<int>(config.train.leaves);
      EXPECT_NO_THROW(check_programs(programs, leaves)) << (zero.empty() ? "not shared" : zero.back());
      EXPECT_EQ(has(programs[0], OpCode::kReduceScatter), !zero.empty());
      if (zero.empty()) continue;
      for (Program& program : programs) {
        std::erase_if(program.instructions, [](const Instruction& i) { return i.op == OpCode::kAllGather; });
      }
      EXPECT_THROW(check_programs(programs, leaves), Error) << "nobody gathers";
    }
  }
}

// The programs of all ranks are checked, not those of small jobs alone.
TEST(ExecutedPrograms, AreCheckedHoweverManyThereAre) {
  constexpr int kWorkers = 72;
  const Words many = {"--train.leaves=72", "--train.global_batch=72", "--parallel.dp=72", "--parallel.zero=1"};
  const Config config = config_of("mlp", many);
  const OpenedData data = open_data(data_options_of(config));
  run_as_threads(kWorkers, [&](World& world) {
    const Trainer trainer(world, build_model(config), config, data);
    if (world.rank() > 0) return;
    EXPECT_EQ(programs_of(trainer.steps().shape()).front(), trainer.executor().program());
    EXPECT_EQ(trainer.steps().report().ranks.size(), static_cast<size_t>(kWorkers));
  });
}

// A prediction is of the lists that a training executes. The simulator takes the parts of its stages for their groups
// of gradients, the trainer groups parameters: these numbers are put in, all else must be equal.
void expect_played(const Config& config, int workers) {
  const Simulation simulation = simulate(job_of(config, Software::kTrireme), find_cluster("a100-80gb"));
  EXPECT_EQ(programs_of(simulation.shape, 0), simulation.programs);
  const std::vector<Program> executed = executed_programs(config, workers);
  const auto of_replica = static_cast<size_t>(config.parallel.tp * config.parallel.pp);
  for (size_t rank = 0; rank < executed.size(); ++rank) {
    const Program& program = executed[rank];
    StepShape shape = simulation.shape;
    shape.pipeline.groups = program.is_pipeline() ? program.groups_of_stage : std::vector{program.num_groups};
    shape.zero.sharded_groups = program.zero.sharded_groups;
    ASSERT_EQ(program_of(shape, program.pipeline_rank, static_cast<int>(rank / of_replica)), program)
        << "rank " << rank;
  }
}

TEST(ExecutedPrograms, AreThoseThatTheSimulatorPlays) {
  int num_compared = 0;
  for (const Composed& each : all_composed()) {
    SCOPED_TRACE(each.to_string());
    Config config = each.config();
    try {
      check(config, each.workers());
    } catch (const UsageError&) {
      continue;
    }
    expect_played(config, each.workers());
    ++num_compared;
  }
  EXPECT_GT(num_compared, 100);
}

// The ways to update that the composition's table does not have.
TEST(ExecutedPrograms, AreThoseThatTheSimulatorPlaysWhateverReplicasExchange) {
  for (Words words : std::vector<Words>{
           {"--parallel.dp=4", "--parallel.aggregation=adasum"},
           {"--parallel.dp=3", "--train.leaves=6", "--parallel.aggregation=adasum"},
           {"--parallel.dp=2", "--compression.method=onebit_adam", "--compression.warmup_steps=5"},
           {"--parallel.dp=4", "--local.method=average", "--local.every=4"},
           {"--parallel.dp=2", "--local.method=diloco", "--local.format=int8"},
           {"--parallel.dp=2", "--parallel.aggregation=server", "--server.mode=asynchronous"},
           {"--parallel.dp=4", "--parallel.aggregation=server", "--server.mode=bounded"},
           {"--parallel.pp=2", "--parallel.dp=2", "--parallel.aggregation=server", "--server.mode=asynchronous"}}) {
    SCOPED_TRACE(words.back());
    words.push_back("--train.clip=0");
    const Config config = config_of("gpt2", words);
    const auto workers = static_cast<int>(config.parallel.dp * config.parallel.pp);
    ASSERT_NO_THROW(check(config, workers));
    expect_played(config, workers);
  }
}

// What bucket_mb says is obeyed by both; 0 is derived by both alike.
TEST(ExecutedPrograms, HaveTheGroupsThatTheSimulatorCounts) {
  Cluster cluster = find_cluster("a100-80gb");
  cluster.stack.sums_in_tree = true;  // as measured with this runtime
  const auto expect_groups = [&](const Words& words, int expected) {
    Words all = {"--parallel.dp=2", "--model.tied=false", "--model.layers=3"};
    all.insert(all.end(), words.begin(), words.end());
    const Config config = config_of("gpt2", all);
    int groups = 0;
    run_as_threads(2, [&](World& world) {
      const Trainer trainer(world, build_model(config), config, open_data(data_options_of(config)));
      if (world.rank() != 0) return;
      const GradientStore& store = *trainer.part().stages()[0].gradients;
      for (int group = 0; group < store.num_groups(); ++group) {
        groups += config.parallel.zero == 0 || store.is_sharded(group);  // the simulator shards vectors, too
      }
    });
    const Simulation simulation = simulate(job_of(config, trireme_on(cluster)), cluster);
    EXPECT_EQ(groups, expected) << words.back();
    EXPECT_EQ(std::ssize(simulation.stages[0].parts), expected) << words.back();
  };
  const int layers = 3 + 2;
  expect_groups({"--parallel.zero=3"}, layers);
  expect_groups({"--parallel.zero=3", "--parallel.bucket_mb=0"}, layers);
  expect_groups({"--parallel.zero=3", "--parallel.bucket_mb=4"}, 1);
  expect_groups({"--parallel.zero=3", "--parallel.bucket_mb=64"}, 1);
  expect_groups({"--parallel.zero=3", "--parallel.bucket_mb=0.001"}, layers);
  expect_groups({"--parallel.zero=0"}, 1);
  expect_groups({"--parallel.zero=0", "--parallel.bucket_mb=4"}, 1);
}

}  // namespace
}  // namespace trireme
