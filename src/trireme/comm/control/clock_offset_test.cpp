#include "trireme/comm/control/clock_offset.h"

#include <gtest/gtest.h>

#include <cmath>

#include "trireme/comm/world.h"

namespace trireme {
namespace {

TEST(ClockOffset, OfThreadsIsNone) {
  run_as_threads(3, [](World& world) {
    const double offset = clock_offset(world.comm());
    EXPECT_LT(std::abs(offset), 0.5);  // they share one clock; what is left is half of a round trip
    EXPECT_TRUE(world.rank() > 0 || offset == 0);
  });
}

}  // namespace
}  // namespace trireme
