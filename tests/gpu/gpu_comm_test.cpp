// Communicators with a GPU: every operation among processes by each backend, and what survivors say when one fails.
// ctest: timeout=600
#include <gtest/gtest.h>

#include <cstdlib>

#include "faults/kill_trial.h"
#include "support/local_job.h"
#include "support/paths.h"
#include "trireme/gpu/device.h"

namespace trireme {
namespace {

using namespace std::chrono_literals;

std::string program() { return program_path("gpu_comm_program"); }

struct Case {
  const char* backend;
  int ranks;
};
std::string name_of(const Case& one) { return fmt::format("{}{}", one.backend, one.ranks); }

class GpuComm : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!gpu::survey().usable()) GTEST_SKIP() << "no GPU: not run";
  }
  RankProcesses start(std::vector<std::string> words, int ranks) {
    words.insert(words.begin(), {program(), fmt::format("backend={}", GetParam().backend)});
    RankProcesses::Options options;
    options.size = ranks;
    return RankProcesses(words, options);
  }
};

TEST_P(GpuComm, DoesWhatTheHostDoes) {
  LocalJob job;
  job.num_ranks = GetParam().ranks;
  job.argv = {program(), fmt::format("backend={}", GetParam().backend)};
  if (GetParam().ranks > 2) job.argv.push_back("short=1");
  job.timeout = 120s;
  const JobResult result = run_job(job);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_TRUE(contains(result.output, fmt::format("all right: {} ranks by {}\n", job.num_ranks, GetParam().backend)))
      << result.output;
  fmt::print("{}", result.output);
}
INSTANTIATE_TEST_SUITE_P(By, GpuComm,
                         testing::Values(Case{"ipc", 2}, Case{"ipc", 3}, Case{"ipc", 4}, Case{"ipc", 8},
                                         Case{"nccl", 2}, Case{"nccl", 4}),
                         [](const auto& one) { return name_of(one.param); });

class GpuFault : public GpuComm {
 protected:
  /// Everybody but `victim` has thrown an error that blames it, within `limit`; the slowest's seconds.
  void expect_named(RankProcesses& ranks, int victim, Clock::time_point since, double limit, const std::string& words) {
    double slowest = 0;
    for (int rank = 0; rank < ranks.size(); ++rank) {
      if (rank == victim) continue;
      EXPECT_EQ(ranks[rank].wait(Deadline::after(30s)), 3) << ranks.outputs();
      const auto caught = caught_in(ranks[rank].output());
      if (!caught) {
        ADD_FAILURE() << "rank " << rank << " says nothing of a failure\n" << ranks.outputs();
        continue;
      }
      EXPECT_EQ(caught->culprit, victim) << caught->message;
      EXPECT_TRUE(contains(caught->message, fmt::format("rank {} (", victim)) && contains(caught->message, words))
          << caught->message;
      slowest = std::max(slowest, std::chrono::duration<double>(caught->at - since).count());
    }
    EXPECT_LT(slowest, limit) << ranks.outputs();
    fmt::print("{}: named by all within {:.2f} s\n", name_of(GetParam()), slowest);
  }
};

TEST_P(GpuFault, AKilledRankIsNamed) {
  for (const int victim : {0, 1}) {  // the leader of an ipc group, and another
    RankProcesses ranks = start({"mode=loop"}, 3);
    ASSERT_TRUE(ranks.wait_for("working", 60s)) << ranks.outputs();
    std::this_thread::sleep_for(50ms);
    const Clock::time_point killed = Clock::now();
    ranks[victim].signal(SIGKILL);
    expect_named(ranks, victim, killed, 6, fmt::format("pid {}", ranks[victim].pid()));
    ranks.wait(20s);
  }
}

TEST_P(GpuFault, ARankThatStaysAwayIsNamed) {
  RankProcesses ranks = start({"mode=loop", "absent=1", "call_ms=4000"}, 3);
  ASSERT_TRUE(ranks.wait_for("working", 60s)) << ranks.outputs();
  expect_named(ranks, 1, Clock::now(), 10, "gave up all-reduce");
  ranks[1].signal(SIGKILL);
  ranks.wait(10s);
}

TEST_P(GpuFault, AStuckKernelIsNamed) {
  RankProcesses ranks = start({"mode=loop", "stuck=2", "call_ms=4000"}, 3);
  ASSERT_TRUE(ranks.wait_for("working", 60s)) << ranks.outputs();
  const Clock::time_point since = Clock::now();
  expect_named(ranks, 2, since, 10, "its own GPU work in front of it has not ended");
  EXPECT_EQ(ranks[2].wait(Deadline::after(30s)), 3) << ranks.outputs();
  const auto caught = caught_in(ranks[2].output());
  EXPECT_TRUE(caught && caught->culprit == 2) << ranks[2].output();
}

TEST_P(GpuFault, RanksThatDisagreeAreTold) {
  const bool by_nccl = std::string_view(GetParam().backend) == "nccl";  // the same meeting: once is enough
  for (const char* what : {"count", "type", "reduction", "place", "order"}) {
    if (by_nccl && std::string_view(what) != "count") continue;
    RankProcesses ranks = start({"mode=loop", std::string("mismatch=") + what, "call_ms=5000"}, 3);
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(ranks[rank].wait(Deadline::after(60s)), 3) << what << ranks.outputs();
      const auto caught = caught_in(ranks[rank].output());
      EXPECT_TRUE(caught && contains(caught->message, "disagree") && caught->culprit == 1) << what << ranks.outputs();
    }
  }
}

TEST_P(GpuFault, OneWithoutAGpuIsAnErrorForAll) {
  RankProcesses::Options options;
  options.size = 2;
  options.of_rank[1]["CUDA_VISIBLE_DEVICES"] = "-1";
  RankProcesses ranks({program(), fmt::format("backend={}", GetParam().backend), "attach_anyway=1"}, options);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(ranks[rank].wait(Deadline::after(60s)), 1) << ranks.outputs();
    EXPECT_TRUE(contains(ranks[rank].output(), "rank 1 has no GPU")) << ranks.outputs();
  }
}
INSTANTIATE_TEST_SUITE_P(By, GpuFault, testing::Values(Case{"ipc", 3}, Case{"nccl", 3}),
                         [](const auto& one) { return name_of(one.param); });

}  // namespace
}  // namespace trireme
