// Ranks that disagree about a collective are told so, always: 500 cases, none silent, none that hangs.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <sstream>
#include <thread>

#include "support/mismatch_case.h"
#include "support/paths.h"
#include "support/process_group.h"

namespace trireme {
namespace {

using namespace std::chrono_literals;

/// Counts for the last line of the test: where ranks were told, and how long it took.
struct Tally {
  std::array<int, 4> where{};
  std::array<int, kNumMismatches> cases{}, by_deadline{};
  double slowest = 0, slowest_of_missing = 0;

  void add(const MismatchCase& plan, const std::vector<MismatchOutcome>& outcomes) {
    const auto kind = static_cast<size_t>(plan.mismatch);
    bool gave_up = false;
    for (const MismatchOutcome& outcome : outcomes) {
      ++where[static_cast<size_t>(outcome.where)];
      gave_up = gave_up || outcome.gave_up();
      double& worst = plan.mismatch == Mismatch::kMissing ? slowest_of_missing : slowest;
      worst = std::max(worst, outcome.seconds);
    }
    ++cases[kind];
    by_deadline[kind] += gave_up;
  }
  void print(const std::string& title) const {
    fmt::print(
        "{}: ranks told at once {}, at the next call {}, at the end {}, never {}; slowest {:.2f} s ({:.2f} s with "
        "one missing)\n  noticed only by the deadline:",
        title, where[1], where[2], where[3], where[0], slowest, slowest_of_missing);
    for (size_t i = 0; i < cases.size(); ++i)
      fmt::print(" {} {} of {}{}", name_of(static_cast<Mismatch>(i)), by_deadline[i], cases[i],
                 i + 1 < cases.size() ? "," : "\n");
  }
};

/// Ends the whole test when a case hangs, since a thread cannot be ended.
class Watchdog {
 public:
  Watchdog()
      : thread_([this](std::stop_token stop) {
          std::unique_lock lock(mutex_);
          while (!stop.stop_requested()) {
            changed_.wait_for(lock, stop, 100ms, [] { return false; });
            if (Clock::now() > bites_at_) {
              fmt::print(stderr, "a case hangs: {}\n", what_);
              std::_Exit(1);
            }
          }
        }) {}
  void watch(const std::string& what, Clock::duration patience) {
    const std::lock_guard lock(mutex_);
    what_ = what;
    bites_at_ = Clock::now() + patience;
  }

 private:
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::string what_;
  Clock::time_point bites_at_ = Clock::time_point::max();
  std::jthread thread_;
};

TEST(Mismatch, OfThreads) {
  constexpr uint64_t kCases = 300;
  Tally tally;
  Watchdog watchdog;
  for (uint64_t i = 0; i < kCases; ++i) {
    const MismatchCase plan = make_mismatch_case(test_seed() + i, 5, true);
    watchdog.watch(plan.describe(), 20s);
    std::vector<MismatchOutcome> outcomes(static_cast<size_t>(plan.ranks));
    run_as_threads(plan.ranks, [&](World& world) { outcomes[static_cast<size_t>(world.rank())] = play(world, plan); });
    EXPECT_EQ(judge(plan, outcomes), "");
    // Ranks that share memory see what the others are doing: only one that does nothing is missed by the clock.
    if (plan.mismatch != Mismatch::kMissing) {
      for (const MismatchOutcome& outcome : outcomes) EXPECT_FALSE(outcome.gave_up()) << plan.describe();
    }
    tally.add(plan, outcomes);
  }
  tally.print(fmt::format("{} cases among threads", kCases));
}

class MismatchOfProcesses : public testing::TestWithParam<Wires> {};

TEST_P(MismatchOfProcesses, IsReported) {
  constexpr uint64_t kCases = 68;
  constexpr int kRanks = 5;
  const bool one_host = GetParam() == Wires::kSharedMemory;
  std::vector<std::string> argv{program_path("mismatch_program")};
  std::vector<Socket> listeners;
  std::vector<MismatchCase> plans;
  for (uint64_t i = 0; i < kCases; ++i) {
    const uint64_t seed = test_seed() + 1000 * (1 + static_cast<uint64_t>(GetParam())) + i;
    plans.push_back(make_mismatch_case(seed, kRanks, one_host));
    listeners.push_back(listen_on("127.0.0.1", 0, 128));
    // The ranks inherit them all, at the same numbers.
    argv.push_back(fmt::format("{}:{}:{}", seed, local_address(listeners.back()).port, listeners.back().fd()));
  }
  RankProcesses::Options options;
  options.size = kRanks;
  options.wires = GetParam();
  options.environment["TRIREME_ONE_HOST"] = one_host ? "1" : "0";
  for (const Socket& listener : listeners) options.kept_fds.push_back(listener.fd());
  RankProcesses ranks(argv, options);
  listeners.clear();
  const std::vector<int> codes = ranks.wait(100s);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(codes[static_cast<size_t>(rank)], 0) << ranks.outputs();
    EXPECT_NE(ranks[rank].output().find("left: 0 descriptors, 0 threads"), std::string::npos) << ranks.outputs();
  }

  Tally tally;
  for (const MismatchCase& plan : plans) {
    std::vector<MismatchOutcome> outcomes;
    for (int rank = 0; rank < plan.ranks; ++rank) {
      std::istringstream lines(ranks[rank].output());
      const std::string wanted = fmt::format("{} ", plan.seed);
      std::string found;
      for (std::string line; std::getline(lines, line);) {
        if (line.starts_with(wanted)) found = line.substr(wanted.size());
      }
      if (!found.starts_with("{")) {
        ADD_FAILURE() << plan.describe() << "\nrank " << rank << ": " << found;
        continue;
      }
      outcomes.push_back(parse_outcome(found));
    }
    if (static_cast<int>(outcomes.size()) < plan.ranks) continue;
    EXPECT_EQ(judge(plan, outcomes), "");
    tally.add(plan, outcomes);
  }
  tally.print(fmt::format("{} cases among processes, {}", kCases, name_of(GetParam())));
  EXPECT_TRUE(ranks.leftovers().empty());
}

INSTANTIATE_TEST_SUITE_P(Over, MismatchOfProcesses,
                         testing::Values(Wires::kSharedMemory, Wires::kTcp, Wires::kMixedHosts),
                         [](const auto& wires) { return name_of(wires.param); });

}  // namespace
}  // namespace trireme
