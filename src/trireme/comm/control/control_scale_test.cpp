// A thousand ranks join one job, all at once.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdio>

#include "trireme/comm/control/control_test_util.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

namespace trireme {
namespace {

using namespace control::testing;

TEST(ControlScale, AThousandRanksJoin) {
  const int size = SANITIZED ? 100 : 1000;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t needed = rlim_t(size) * 7 + 500;
  if (limit.rlim_max < needed) GTEST_SKIP() << "needs " << needed << " open files, may have " << limit.rlim_max;
  limit.rlim_cur = std::max(limit.rlim_cur, needed);
  ::setrlimit(RLIMIT_NOFILE, &limit);

  const auto start = Clock::now();
  Planes planes = join_all(Job(size));
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  std::printf("%d ranks joined in %.2f s\n", size, seconds);
  EXPECT_LT(seconds, 10);
  planes[7]->report({7, "rank 7 broke"});
  const auto reported = Clock::now();
  for (auto& plane : planes) ASSERT_TRUE(eventually([&] { return plane->failure() != nullptr; }));
  const double spread = std::chrono::duration<double>(Clock::now() - reported).count();
  std::printf("a failure reached all in %.3f s\n", spread);
  EXPECT_LT(spread, 1);
  leave_all(planes);
}

}  // namespace
}  // namespace trireme
