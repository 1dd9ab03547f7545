// 100,000 strangers at each of two ports of a running job.
// ctest: slow timeout=300
#include "faults/flood_trial.h"

namespace trireme {
namespace {

TEST(FloodMany, OfEveryPortLeavesTheJobAlone) { flood_trial(40'000, 100'000); }

}  // namespace
}  // namespace trireme
