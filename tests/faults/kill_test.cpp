// `kill -9` of any rank: every survivor throws within a second, names the dead one and ends; nothing is left.
#include <thread>

#include "faults/kill_trial.h"
#include "support/paths.h"

namespace trireme {
namespace {

using namespace std::chrono_literals;

class Kill : public testing::TestWithParam<Wires> {};

TEST_P(Kill, IsNoticedByAll) {
  constexpr uint64_t kKills = 20;
  double slowest = 0;
  for (uint64_t i = 0; i < kKills; ++i)
    slowest = std::max(slowest, kill_trial(test_seed() + 100 * static_cast<uint64_t>(GetParam()) + i, GetParam()));
  fmt::print("{} kills, {}: noticed by all within {:.2f} s\n", kKills, name_of(GetParam()), slowest);
}

TEST_P(Kill, OfTwoAtOnceIsNoticedByAll) {
  const double slowest = kill_trial(test_seed() + 50 + static_cast<uint64_t>(GetParam()), GetParam(), 2);
  fmt::print("2 killed at once, {}: noticed by all within {:.2f} s\n", name_of(GetParam()), slowest);
}

INSTANTIATE_TEST_SUITE_P(Over, Kill, testing::Values(Wires::kSharedMemory, Wires::kTcp, Wires::kMixedHosts),
                         [](const auto& wires) { return name_of(wires.param); });

TEST(Kill, WhileJoiningEndsTheOthersInTime) {
  // Killed before it has said a word, a rank is only missed: then the deadline for joining counts.
  for (uint64_t seed = test_seed(); seed < test_seed() + 4; ++seed) {
    std::mt19937_64 random(seed);
    RankProcesses::Options options;
    options.size = 3;
    RankProcesses ranks({program_path("loop_program"), "join_ms=1500"}, options);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 40'000));
    const int victim = static_cast<int>(seed % 3);
    ranks[victim].signal(SIGKILL);
    const std::vector<int> codes = ranks.wait(6s);
    for (int rank = 0; rank < options.size; ++rank) {
      EXPECT_NE(codes[static_cast<size_t>(rank)], 0) << ranks.outputs();
      if (rank == victim) continue;
      const std::string output = ranks[rank].output();
      EXPECT_TRUE(contains(output, fmt::format("rank {}", victim)) || contains(output, fmt::format(": {}", victim)))
          << "seed " << seed << "\n"
          << ranks.outputs();
    }
    expect_no_leftovers(ranks);
  }
}

TEST(Kill, UnderMpirunLeavesNobody) {
  if (std::system("mpirun --version >/dev/null 2>&1") != 0 ||
      !std::filesystem::exists(program_path("../lib/libtrireme_mpi.so"))) {
    GTEST_SKIP() << "no MPI here";
  }
  for (uint64_t seed = test_seed(); seed < test_seed() + 3; ++seed) {
    std::mt19937_64 random(seed);
    constexpr int kRanks = 3;
    ScratchFolder folder;
    ChildProcess mpirun({"mpirun", "--allow-run-as-root", "--oversubscribe", "-n", std::to_string(kRanks),
                         program_path("loop_program")},
                        {{"TRIREME_TRANSPORT", "mpi"},
                         {"TMPDIR", folder.path()},
                         {"XDG_RUNTIME_DIR", folder.path()},
                         // What Open MPI leaves behind when a rank is killed goes with the folder.
                         {"OMPI_MCA_btl_vader_backing_directory", folder.path()}},
                        folder.path() / "output");
    std::vector<pid_t> pids;
    const Deadline deadline = Deadline::after(40s);
    while (pids.size() < kRanks && !deadline.expired() && !mpirun.poll()) {
      std::this_thread::sleep_for(5ms);
      pids.clear();
      const std::string output = mpirun.output();
      if (std::count(output.begin(), output.end(), '\n') < 2 * kRanks) continue;  // joined, and working
      for (size_t at = 0; (at = output.find("with pid ", at)) != std::string::npos; at += 9)
        pids.push_back(std::atoi(output.c_str() + at + 9));
    }
    ASSERT_EQ(pids.size(), size_t{kRanks}) << mpirun.output();
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 50));
    kill(pids[random() % kRanks], SIGKILL);
    EXPECT_NE(mpirun.wait(Deadline::after(20s)), 0) << mpirun.output();
    const Deadline gone_by = Deadline::after(5s);  // mpirun does not wait for those that it kills
    for (const pid_t pid : pids) {
      while (kill(pid, 0) == 0 && !gone_by.expired()) std::this_thread::sleep_for(1ms);
      EXPECT_NE(kill(pid, 0), 0) << "process " << pid << " is left\n" << mpirun.output();
    }
  }
}

}  // namespace
}  // namespace trireme
