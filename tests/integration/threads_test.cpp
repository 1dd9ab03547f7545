// Every collective among ranks that are threads, for many numbers of ranks.
// ctest: sanitize
#include <gtest/gtest.h>

#include <cstdlib>

#include "support/collective_checks.h"
#include "support/paths.h"

namespace trireme {
namespace {

// Sanitizers are ten times slower and find the same in fewer ranks.
std::vector<int> numbers_of_ranks() {
  if (sanitized()) return {1, 2, 3, 5};
  return {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16};
}

class Threads : public testing::TestWithParam<int> {};

TEST_P(Threads, Everything) {
  CheckOptions options;
  if (GetParam() > 5) options.counts = {0, 1, 1000, 20011};
  if (GetParam() > 9 || (sanitized() && GetParam() > 2)) {
    options.counts = {0, 1, 5003};
    options.all_types = false;
  }
  run_as_threads(GetParam(), [&](World& world) { check_everything(world, options); });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Threads, testing::ValuesIn(numbers_of_ranks()), testing::PrintToStringParamName());

TEST(Threads, FailureOfOneReachesAll) {
  try {
    run_as_threads(3, [](World& world) {
      if (world.rank() == 1) throw std::runtime_error("out of coffee");
      std::vector<float> data(10);
      EXPECT_THROW(world.comm().all_reduce(data), CommError);
      throw std::logic_error("rank 0 and 2 get here");
    });
    FAIL();
  } catch (const std::logic_error&) {
  }
}

}  // namespace
}  // namespace trireme
