// Measurements are added to the cluster file, and what others have measured stays in it.
#include "trireme/measure/machine.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "trireme/base/error.h"
#include "trireme/observe/folder_test_util.h"

namespace trireme::measure {
namespace {

TEST(Machine, HasWhatCanBeTold) {
  const Machine machine = machine_at_hand();
  EXPECT_FALSE(machine.host.empty());
  EXPECT_FALSE(machine.processor.empty());
  EXPECT_GE(machine.cores, 1);
  EXPECT_GT(machine.memory_bytes, uint64_t{64} << 20);
  EXPECT_EQ(machine.date.size(), std::string("2026-03-01").size());
}

TEST(ClusterFileOfMeasurements, KeepsWhatOthersMeasured) {
  const TestFolder folder;
  const std::filesystem::path path = folder / "made/cluster.json";
  EXPECT_EQ(load_cluster_file(path), ClusterFile());
  ClusterFile first;
  first.transports = {{"tcp", 2, {20, 1e-4}, 1e-4, 30, 2e-4}, {"nvlink", 8, {5, 1e-6}, 0, 9, 0}};
  first.others = {{"products", "[1]"}};
  keep_in_cluster_file(path, first);
  ClusterFile second;
  second.transports = {{"tcp", 2, {10, 1e-4}, 1e-4, 30, 2e-4}};
  keep_in_cluster_file(path, second);
  const ClusterFile kept = load_cluster_file(path);
  ASSERT_EQ(kept.transports.size(), 2u);
  EXPECT_EQ(kept.cost("tcp", 2).link.latency_us, 10);
  EXPECT_EQ(kept.cost("nvlink", 8).link.latency_us, 5);
  EXPECT_EQ(kept.others.at("products"), "[1]");
  EXPECT_EQ(kept.host, machine_at_hand().host);
}

TEST(ClusterPath, IsCheckedBeforeMinutesOfWork) {
  const TestFolder folder;
  EXPECT_EQ(cluster_path((folder / "new/folders/mine.json").string()), folder / "new/folders/mine.json");
  const std::string home = std::getenv("HOME") != nullptr ? std::getenv("HOME") : "";
  for (const char* name : {"TRIREME_CLUSTER", "XDG_CONFIG_HOME", "HOME"}) unsetenv(name);
  EXPECT_THROW(cluster_path(""), UsageError) << "there is no home";
  if (!home.empty()) setenv("HOME", home.c_str(), 1);
  setenv("TRIREME_CLUSTER", "/tmp/mine.json", 1);
  EXPECT_EQ(cluster_path(""), "/tmp/mine.json");
  unsetenv("TRIREME_CLUSTER");
}

}  // namespace
}  // namespace trireme::measure
