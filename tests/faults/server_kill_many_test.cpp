// 50 kills of servers and 12 of workers at random moments, in every mode.
// ctest: slow timeout=1200
#include "faults/server_kill_trial.h"

namespace trireme {
namespace {

TEST(ServerKillMany, NothingAcknowledgedIsLost) {
  const std::vector<std::string> modes = {"sync", "async", "bounded"};
  std::vector<double> seconds;
  for (uint64_t i = 0; i < 25; ++i) {
    seconds.push_back(server_kill_trial({.seed = test_seed() + 1000 + i,
                                         .mode = modes[i % 3],
                                         .num_servers = 2 + static_cast<int>(i % 3),
                                         .num_kills = 2,
                                         .kills_worker = i / 3 % 2 == 1,
                                         .waits = modes[i % 3] == "sync"}));
  }
  std::sort(seconds.begin(), seconds.end());
  fmt::print("50 kills of servers, 12 of workers: replicated again within {:.2f} s (median {:.2f} s)\n", seconds.back(),
             seconds[seconds.size() / 2]);
}

}  // namespace
}  // namespace trireme
