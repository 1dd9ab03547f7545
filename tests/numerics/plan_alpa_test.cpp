// The planner on Alpa's published settings: GPT on V100s of 16 GB, 8 a host, 25 Gb/s between hosts. Equal splits and
// random plans are worse than what it finds, and so is every layout of a small enough space.
// ctest: timeout=300
#include <gtest/gtest.h>

#include <random>

#include "trireme/base/error.h"
#include "trireme/config/resolve.h"
#include "trireme/plan/candidates.h"
#include "trireme/plan/config_job.h"
#include "trireme/plan/search.h"

namespace trireme {
namespace {

struct Setting {
  const char* name;
  int layers, hidden, heads, devices;
};

// Its GPTs, with 1,024 sequences of 1,024 tokens a step and a vocabulary of 51,200.
constexpr Setting kSettings[] = {{"350M", 24, 1024, 16, 1}, {"760M", 24, 1536, 16, 2},  {"1.3B", 24, 2048, 32, 4},
                                 {"2.6B", 32, 2560, 32, 8}, {"6.7B", 32, 4096, 32, 16}, {"15B", 48, 5120, 40, 32},
                                 {"39B", 48, 8192, 64, 64}};

Config config_of(const Setting& setting) {
  ConfigSources sources;
  sources.default_preset = "";
  sources.arguments = {"--model.kind=gpt2",
                       "--model.layers=" + std::to_string(setting.layers),
                       "--model.hidden=" + std::to_string(setting.hidden),
                       "--model.heads=" + std::to_string(setting.heads),
                       "--model.seq=1024",
                       "--model.vocab=51200",
                       "--train.global_batch=1024",
                       "--precision.compute=float16"};
  return resolve(sources);
}

double seconds_of(const Job& job, const Cluster& cluster) {
  try {
    const Simulation simulation = simulate(job, cluster);
    return simulation.fits() ? simulation.step_seconds : 1e300;
  } catch (const UsageError&) {
    return 1e300;
  }
}

TEST(Alpa, EqualSplitsAndRandomPlansAreWorse) {
  const Cluster cluster = find_cluster("v100-16gb");
  std::mt19937 random(1);
  for (const Setting& setting : kSettings) {
    const Config config = config_of(setting);
    const PlanReport report = explain_plan(config, cluster, setting.devices, {.explain = false});
    const double planned = report.plan.predicted.step_seconds;
    // What one does without a planner: as many layers on each stage, replicas beside it, full recomputation, and the
    // best micro-batch for that.
    for (const int64_t pp : divisors_of(setting.devices)) {
      Job equal = job_of(config, Software::kTrireme);
      equal.layout.pp = pp;
      equal.layout.dp = setting.devices / pp;
      equal.layout.recompute = RecomputeKind::kFull;
      double best = 1e300;
      for (const int64_t samples : {1, 2, 4, 8}) {
        equal.layout.micro_batch = samples;
        best = std::min(best, seconds_of(equal, cluster));
      }
      EXPECT_LT(planned, (setting.devices > 1 ? 0.97 : 1.005) * best) << setting.name << " in " << pp << " stages";
    }
    std::vector<Candidate> all = all_candidates(config, cluster, setting.devices, {});
    std::erase_if(all, [&](const Candidate& candidate) { return candidate.least_bytes > cluster.device.memory_bytes; });
    int fitting = 0;
    for (int trial = 0; trial < 60; ++trial) {
      const double seconds = seconds_of(all[random() % all.size()].job, cluster);
      EXPECT_LE(planned, seconds * 1.005) << setting.name;  // as good as each other: the simplest is taken
      fitting += seconds < 1e300 ? 1 : 0;
    }
    EXPECT_GT(fitting, 5) << setting.name;
  }
}

TEST(Alpa, NothingInTheWholeSpaceIsFaster) {  // bounds cut nothing off that would win
  const Cluster cluster = find_cluster("v100-16gb");
  for (const Setting& setting : {kSettings[0], kSettings[1], kSettings[2]}) {
    const Config config = config_of(setting);
    const double planned = make_plan(config, cluster, setting.devices).predicted.step_seconds;
    for (const Candidate& candidate : all_candidates(config, cluster, setting.devices, {})) {
      const double seconds = seconds_of(candidate.job, cluster);
      EXPECT_LE(planned, seconds * 1.005) << setting.name;
      if (seconds < 1e300) {
        EXPECT_LE(candidate.least_seconds, seconds) << setting.name;
      }
    }
  }
}

TEST(Alpa, BoundsAreBelow) {
  const Cluster cluster = find_cluster("h100-80gb");
  std::mt19937 random(4);
  const std::vector<Candidate> all = all_candidates(config_of(kSettings[4]), cluster, 32, {});
  int checked = 0;
  for (int trial = 0; trial < 80; ++trial) {
    const Candidate& candidate = all[random() % all.size()];
    try {
      const Simulation simulation = simulate(candidate.job, cluster);
      EXPECT_LE(candidate.least_seconds, simulation.step_seconds);
      EXPECT_LE(candidate.least_bytes, simulation.memory_bytes());
      ++checked;
    } catch (const UsageError&) {
    }
  }
  EXPECT_GT(checked, 40);
}

}  // namespace
}  // namespace trireme
