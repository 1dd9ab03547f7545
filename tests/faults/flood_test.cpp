// 5,000 strangers at the ports of a running job.
#include "faults/flood_trial.h"

namespace trireme {
namespace {

TEST(Flood, OfEveryPortLeavesTheJobAlone) { flood_trial(2000, 2500); }

}  // namespace
}  // namespace trireme
