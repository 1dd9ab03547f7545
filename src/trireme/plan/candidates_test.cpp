// Compares the bounds of the search with simulations.
#include "trireme/plan/candidates.h"

#include <gtest/gtest.h>

#include "trireme/config/resolve.h"
#include "trireme/plan/search.h"
#include "trireme/simulate/simulate.h"

namespace trireme {
namespace {

Config deep_gpt(const std::vector<std::string>& more) {
  ConfigSources sources;
  sources.arguments = {"--model.kind=gpt2",       "--model.layers=8",      "--model.hidden=1024",
                       "--model.heads=16",        "--model.seq=1024",      "--train.micro_batch=4",
                       "--train.global_batch=64", "--train.recompute=none"};
  sources.arguments.insert(sources.arguments.end(), more.begin(), more.end());
  return resolve(sources);
}

// The memory bound of a schedule that holds few micro-batches must not be that of one that holds many.
TEST(Candidates, BoundsOfEveryScheduleAreBelow) {
  const Cluster cluster = find_cluster("a100-80gb");
  for (const ScheduleKind kind : schedule_kinds()) {
    for (const char* pp : {"1", "4"}) {
      const Config config = deep_gpt(
          {"--parallel.schedule=" + std::string(name_of(kind)), std::string("--parallel.pp=") + pp, "--parallel.tp=1"});
      const std::vector<Candidate> all = all_candidates(config, cluster, 4, {});
      EXPECT_FALSE(all.empty()) << name_of(kind);
      for (const Candidate& candidate : all) {
        const Simulation simulation = simulate(candidate.job, cluster);
        EXPECT_LE(candidate.least_bytes, simulation.memory_bytes()) << name_of(kind) << " pp = " << pp;
        EXPECT_LE(candidate.least_seconds, simulation.step_seconds) << name_of(kind) << " pp = " << pp;
      }
    }
  }
}

}  // namespace
}  // namespace trireme
