#include "trireme/simulate/cluster.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/mesh/cluster_file.h"

namespace trireme {
namespace {

std::string message_of(const std::string& json) {
  try {
    cluster_from_json(json, "my.json");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Cluster, PresetsAreWholeAndSurviveJson) {
  for (const Cluster& cluster : cluster_presets()) {
    SCOPED_TRACE(cluster.name);
    cluster.check();
    EXPECT_EQ(find_cluster(cluster.name), cluster);
    const Cluster again = cluster_from_json(cluster_to_json(cluster), "x");
    EXPECT_EQ(cluster_to_json(again), cluster_to_json(cluster));
  }
}

TEST(Cluster, AFileChangesAPreset) {
  const Cluster mine = cluster_from_json(
      R"({"preset": "a100-80gb", "devices_per_host": 4, "hosts": 2, "between": {"gb_s": 12.5}})", "my.json");
  EXPECT_EQ(mine.name, "my.json");
  EXPECT_EQ(mine.devices_per_host, 4);
  EXPECT_DOUBLE_EQ(mine.between.bandwidth, 12.5e9);
  EXPECT_DOUBLE_EQ(mine.between.efficiency, find_cluster("a100-80gb").between.efficiency);
  EXPECT_EQ(mine.hosts_for(8), 2);
  EXPECT_THROW(mine.hosts_for(9), UsageError);
}

TEST(Cluster, HolesAreNamed) {
  const std::string missing = message_of(R"({"device": {"peak_tflops": {"float32": 1}}})");
  for (const char* hole : {"device.memory_gb", "device.memory_gb_s", "between.gb_s", "preset"}) {
    EXPECT_NE(missing.find(hole), std::string::npos) << hole << " in " << missing;
  }
  EXPECT_NE(message_of("{}").find("\"device\" is missing"), std::string::npos);
  EXPECT_NE(message_of(R"({"preset": "laptop", "insid": {}})").find("did you mean inside?"), std::string::npos);
  EXPECT_NE(message_of(R"({"preset": "laptop", "inside": {"gb_s": "fast"}})").find("must be a number"),
            std::string::npos);
  EXPECT_NE(message_of(R"({"preset": "a100"})").find("not known"), std::string::npos);
  EXPECT_NE(message_of("[1").find("not JSON"), std::string::npos);
  EXPECT_NE(message_of("[1]").find("not an object"), std::string::npos);
  EXPECT_NE(message_of(R"({"preset": "laptop", "device": {"memory_efficiency": 2}})").find("memory_efficiency"),
            std::string::npos);
  EXPECT_THROW(find_cluster("a100-80g"), UsageError);
}

TEST(Cluster, TakesTheLinksThatBenchCommMeasured) {
  ClusterFile measured;
  measured.host = "here";
  measured.cores = 2;
  measured.transports.push_back({"shared memory", 2, {1.5, 2e-4}, 1e-4, 1, 1e-4});
  std::string json = measured.to_json();
  EXPECT_NE(message_of(json).find("\"device\" is missing"), std::string::npos);
  json.insert(json.find('{') + 1, "\"preset\": \"laptop\",");
  const Cluster cluster = cluster_from_json(json, "my.json");
  EXPECT_DOUBLE_EQ(cluster.inside.effective(), 5e9);
  EXPECT_DOUBLE_EQ(cluster.inside.latency_us, 1.5);
}

TEST(NumberTypes, HaveShortNames) {
  EXPECT_EQ(number_type("fp16"), NumberType::kFloat16);
  EXPECT_EQ(number_type("bfloat16"), NumberType::kBfloat16);
  EXPECT_THROW(number_type("int8"), UsageError);
}

}  // namespace
}  // namespace trireme
