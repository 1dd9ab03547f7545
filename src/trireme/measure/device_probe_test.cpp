// From what the probe of a device prints to a cluster.
#include "trireme/measure/device_probe.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "trireme/measure/machine.h"
#include "trireme/observe/folder_test_util.h"

namespace trireme::measure {
namespace {

nlohmann::json probed() {
  const auto product = [](const char* type, int64_t m, double tflops) {
    return nlohmann::json{{"type", type}, {"m", m}, {"n", 64}, {"k", 64}, {"tflops", tflops}};
  };
  return {{"name", "core"},
          {"units", 1},
          {"memory_bytes", 8e9},
          {"memory_bytes_per_second", 1.25e10},
          {"devices", 4},
          {"launch_seconds", 2e-6},
          {"products", {product("float32", 64, 0.05), product("float32", 1024, 0.1), product("bfloat16", 64, 0.02)}}};
}

TEST(DeviceProbe, CoresShareTheMachine) {
  const DeviceProbe probe = parse_probe(probed(), ClusterFile(), /*on_gpu=*/false);
  const Device& device = probe.cluster.device;
  ASSERT_EQ(probe.products.size(), 3u);
  EXPECT_EQ(probe.products[1].m, 1024);
  EXPECT_DOUBLE_EQ(probe.launch_us, 2);
  EXPECT_DOUBLE_EQ(device.kernel_us, 2);
  EXPECT_DOUBLE_EQ(device.memory_bandwidth, 1.25e10);
  EXPECT_NEAR(device.peak(NumberType::kFloat32), 1.15e11, 1e3)
      << "the fastest product, and what trainings reach beyond";
  EXPECT_NEAR(device.peak(NumberType::kBfloat16), 2.3e10, 1e3);
  EXPECT_EQ(device.peak(NumberType::kFloat16), 0) << "no such products";
  EXPECT_EQ(probe.cluster.shared_cores, 4);
  EXPECT_EQ(probe.cluster.devices_per_host, 4 * kProcessesACore);
}

TEST(DeviceProbe, AGpuReachesWhatItsProductsReach) {
  const DeviceProbe probe = parse_probe(probed(), ClusterFile(), /*on_gpu=*/true);
  EXPECT_DOUBLE_EQ(probe.cluster.device.peak(NumberType::kFloat32), 1e11);
  EXPECT_GT(probe.cluster.device.peak(NumberType::kFp8), 0) << "of the data sheet";
  EXPECT_EQ(probe.cluster.shared_cores, 0);
  EXPECT_EQ(probe.cluster.devices_per_host, 4);
}

TEST(DeviceProbe, LinksOfTheFileCountAndStay) {
  ClusterFile file;
  file.transports = {{"shared memory", 2, {3.5, 1e-4}, 1e-4, 1, 1e-4}};
  const DeviceProbe probe = parse_probe(probed(), file, /*on_gpu=*/false);
  EXPECT_DOUBLE_EQ(probe.cluster.inside.latency_us, 3.5);
  const TestFolder folder;
  file.save(folder / "mine.json");
  keep_device(folder / "mine.json", probe, probe.cluster);
  const ClusterFile kept = load_cluster_file(folder / "mine.json");
  EXPECT_EQ(kept.transports, file.transports);
  const Cluster read = cluster_from_json(kept.to_json(), "mine");
  EXPECT_NEAR(read.device.peak(NumberType::kFloat32), 1.15e11, 1e3);
  EXPECT_EQ(nlohmann::json::parse(kept.others.at("products")).size(), 3u);
  EXPECT_TRUE(device_json(probe, probe.cluster).contains("device"));
}

TEST(DeviceProbe, OutputWithoutAFieldIsAnError) {
  nlohmann::json broken = probed();
  broken.erase("memory_bytes_per_second");
  EXPECT_THROW(parse_probe(broken, ClusterFile(), false), nlohmann::json::exception);
}

}  // namespace
}  // namespace trireme::measure
