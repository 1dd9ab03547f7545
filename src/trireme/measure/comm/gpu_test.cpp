// Links of GPUs from all-reduces of two sizes.
#include "trireme/measure/comm/gpu.h"

#include <gtest/gtest.h>

namespace trireme::measure {
namespace {

TEST(GpuLinks, AreFoundFromTheSmallestAndTheLargestSize) {
  CommOptions options;
  options.ranks = {2, 4};
  options.sizes = {1 << 20, 4096, 64 << 20};
  GpuCommRun run;
  const double us_per_byte = 2e-6;
  for (const uint64_t bytes : options.sizes) {
    const double wire = bus_factor(Operation::kAllReduce, 4) * static_cast<double>(bytes);
    run.points.push_back({Operation::kAllReduce, "nccl", 4, bytes, 40 + wire * us_per_byte, 1e-6 * double(bytes)});
    run.points.push_back({Operation::kAllReduce, "nccl, any order", 4, bytes, 30, 1});
  }
  run.points.push_back({Operation::kAllReduce, "ipc", 2, 4096, 5, 1});  // its largest size could not be measured
  const std::vector<TransportCost> links = gpu_links(options, run);
  ASSERT_EQ(links.size(), 1u) << "sums in any order are no link of their own";
  EXPECT_EQ(links[0].transport, "nccl");
  EXPECT_EQ(links[0].ranks, 4);
  EXPECT_NEAR(links[0].link.us_per_byte, us_per_byte, 1e-12);
  EXPECT_NEAR(links[0].link.latency_us, 10, 0.1) << "four rounds";
  EXPECT_NEAR(links[0].copy_us_per_byte, 1e-6, 1e-12);
}

}  // namespace
}  // namespace trireme::measure
