// What `trireme bench comm --server` asks for and answers.
#include "trireme/cli/bench_comm_server.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/cli/bench_comm_server_worker.h"
#include "trireme/comm/world.h"

namespace trireme::cli {
namespace {

TEST(BenchCommServer, NumbersSurviveTheirText) {
  ServerPoint point;
  point.us = 12.5;
  point.ring_us = 3;
  point.blocked = 0.25;
  point.memory_no_model_bytes = 4096;
  const ServerPoint read = parse_server_point(to_line(point));
  EXPECT_EQ(read.us, 12.5);
  EXPECT_EQ(read.ring_us, 3);
  EXPECT_EQ(read.blocked, 0.25);
  EXPECT_EQ(read.memory_no_model_bytes, 4096);
  EXPECT_THROW(parse_server_point("1 2 3"), Error);
}

TEST(BenchCommServer, FlagsThatMeanNothingBesideItAreRefused) {
  BenchCommFlags flags;
  flags.server = true;
  EXPECT_EQ(check_flags(flags).ranks, (std::vector<int>{1, 2, 4}));
  flags.explain = true;
  EXPECT_THROW(check_flags(flags), UsageError);
  flags.explain = false;
  flags.transport = "threads";
  EXPECT_THROW(check_flags(flags), UsageError);
}

TEST(BenchCommServer, BytesAreThoseOfTheFormulas) {
  constexpr uint64_t kBytes = 4 << 20;
  for (const int servers : {1, 2}) {
    for (const int workers : {1, 3}) {
      run_as_threads(servers + workers, [&](World& world) {
        const ServerPoint point = measure_servers(world.comm(), servers, kBytes, 3);
        EXPECT_EQ(point.worker_bytes, 2.0 * kBytes);
        EXPECT_NEAR(point.server_bytes, 2.0 * kBytes * workers / servers, 1);
        EXPECT_GT(point.us, 0);
      });
    }
  }
}

}  // namespace
}  // namespace trireme::cli
