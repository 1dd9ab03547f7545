// 200 kills at random moments, on every kind of wire.
// ctest: slow timeout=900
#include "faults/kill_trial.h"

namespace trireme {
namespace {

TEST(KillMany, AllAreNoticed) {
  constexpr uint64_t kKills = 200;
  constexpr Wires kWires[] = {Wires::kSharedMemory, Wires::kTcp, Wires::kMixedHosts};
  std::vector<double> seconds;
  for (uint64_t i = 0; i < kKills; ++i)
    seconds.push_back(kill_trial(test_seed() + 10'000 + i, kWires[i % 3], i % 10 == 0 ? 2 : 1));
  std::sort(seconds.begin(), seconds.end());
  fmt::print("{} kills: noticed by all within {:.3f} s (median {:.3f} s)\n", kKills, seconds.back(),
             seconds[kKills / 2]);
}

}  // namespace
}  // namespace trireme
