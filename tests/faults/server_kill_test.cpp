// `kill -9` and SIGSTOP of parameter servers, `kill -9` of workers: nothing acknowledged is lost, and the job ends.
#include "faults/server_kill_trial.h"

namespace trireme {
namespace {

class ServerKill : public testing::TestWithParam<std::string> {};

TEST_P(ServerKill, OfServersLosesNothing) {
  double slowest = 0;
  for (uint64_t i = 0; i < 3; ++i) {
    slowest = std::max(slowest, server_kill_trial({.seed = test_seed() + i, .mode = GetParam(), .num_kills = 2}));
  }
  fmt::print("6 kills of servers, {}: replicated again within {:.2f} s\n", GetParam(), slowest);
}

TEST_P(ServerKill, OfAWorkerLeavesTheOthersAtWork) {
  for (uint64_t i = 0; i < 2; ++i) {
    server_kill_trial({.seed = test_seed() + 20 + i,
                       .mode = GetParam(),
                       .num_kills = 0,
                       .kills_worker = true,
                       .waits = GetParam() == "sync" && i == 1});
  }
}

TEST_P(ServerKill, AStoppedServerIsReplacedAndStepsDownWhenItWakes) {
  server_kill_trial({.seed = test_seed() + 40, .mode = GetParam(), .num_steps = 600, .stops = true});
}

INSTANTIATE_TEST_SUITE_P(Mode, ServerKill, testing::Values("sync", "async", "bounded"),
                         [](const auto& mode) { return mode.param; });

}  // namespace
}  // namespace trireme
