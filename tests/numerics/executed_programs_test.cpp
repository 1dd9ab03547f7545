// The programs that trainers execute: the checker proves them as they are, ZeRO's rewriting included.
#include <gtest/gtest.h>

#include <algorithm>

#include "numerics/training.h"
#include "trireme/base/error.h"
#include "trireme/program/check.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

std::vector<Program> executed_programs(const Config& config, int workers) {
  std::vector<Program> programs(static_cast<size_t>(workers));
  run_as_threads(workers, [&](World& world) {
    const Trainer trainer(world, config, open_data(data_options_of(config)));
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

}  // namespace
}  // namespace trireme
