#include "trireme/simulate/cluster.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/mesh/cluster_file.h"
#include "trireme/simulate/simulate_test_util.h"

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

TEST(Cluster, PresetsAreWhole) {
  for (const Cluster& cluster : cluster_presets()) {
    SCOPED_TRACE(cluster.name);
    cluster.check();
    EXPECT_EQ(find_cluster(cluster.name), cluster);
    Cluster again = cluster_from_json(R"({"preset": ")" + cluster.name + R"("})", "my.json");
    EXPECT_EQ(again.name, "my.json");
    again.name = cluster.name;
    EXPECT_EQ(again, cluster);
  }
}

TEST(Cluster, EveryKeyOfAFileIsRead) {
  const Cluster mine = cluster_from_json(R"({
    "name": "mine", "devices_per_host": 3, "hosts": 5,
    "device": {"name": "D", "peak_tflops": {"float32": 1, "float16": 2, "bfloat16": 3, "fp8": 4}, "memory_gb": 6,
               "memory_gb_s": 7, "units": 8, "product_efficiency": 0.25, "product_half_depth": 9,
               "memory_efficiency": 0.5, "attention_efficiency": 0.75, "kernel_us": 10, "step_seconds": 11,
               "offload_gb_s": 20, "convolution_efficiency": 0.625,
               "update_efficiency": 0.875},
    "inside": {"gb_s": 12, "efficiency": 0.125, "latency_us": 13, "ramp_us": 14, "sum_gain": 15, "switched": false},
    "between": {"gb_s": 16, "efficiency": 0.375, "latency_us": 17, "ramp_us": 18, "sum_gain": 19, "switched": false},
    "stack": {"flash_attention": true, "fused_half_only": true, "fused_update": false, "overlaps_gradients": false,
              "overlaps_tensor": true, "overlaps_messages": false, "eager_traffic": 36, "activation_share": 21, "logit_bytes": 22,
              "loss_gb": 23, "parameter_bytes": 24, "fixed_gb": 25, "accumulation_bytes": 27,
              "tensor_us": 28, "sums_in_tree": true, "loss_traffic": 29,
              "embedding_bytes": 30, "tensor_bytes": 32, "tensor_rank_gb": 33, "gated_share": 34, "gated_traffic": 35},
    "shared_cores": 26, "sharing_cost": 0.125, "products": [],
    "evidence": {"runs": 31, "mean_error": 0.25, "worst_error": 0.5}})",
                                         "my.json");
  const Cluster expected = {
      .name = "mine",
      .device = {"D", {1e12, 2e12, 3e12, 4e12}, 6e9, 7e9, 8, 0.25, 9, 0.5, 0.75, 0.625, 0.875, 10, 20e9, 11},
      .devices_per_host = 3,
      .num_hosts = 5,
      .shared_cores = 26,
      .sharing_cost = 0.125,
      .inside = {12e9, 0.125, 13, 14, 15, false},
      .between = {16e9, 0.375, 17, 18, 19, false},
      .stack = {true, true, false, false, true, false, 36,   21, 34, 35, 22,
                23e9, 30,   32,    24,    25e9, 33e9,  true, 29, 27, 28},
      .evidence = {31, 0.25, 0.5, false}};
  EXPECT_EQ(mine, expected);
}

TEST(Cluster, AFileChangesAPreset) {
  const Cluster mine = cluster_from_json(
      R"({"preset": "a100-80gb", "devices_per_host": 4, "hosts": 2, "between": {"gb_s": 12.5}})", "my.json");
  EXPECT_EQ(mine.name, "my.json");
  EXPECT_EQ(mine.devices_per_host, 4);
  EXPECT_DOUBLE_EQ(mine.between.bandwidth, 12.5e9);
  EXPECT_DOUBLE_EQ(mine.between.efficiency, find_cluster("a100-80gb").between.efficiency);
  EXPECT_EQ(mine.hosts_for(8), 2);
  EXPECT_EQ(mine.evidence, Evidence()) << "what was measured elsewhere says nothing of this network";
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

TEST(Cluster, CoresOfThisMachineAreShared) {
  const Cluster cluster = cores_of_this_machine(2);
  EXPECT_EQ(cluster.shared_cores, 2);
  EXPECT_EQ(spoken_name(cluster.name), "this machine");
  Job job = gpt_job(4, 256, 4, 128);
  const auto seconds = [&](int64_t dp) {
    job.layout.dp = dp;
    return simulate(job, cluster).step_seconds;
  };
  EXPECT_LT(seconds(2), 0.7 * seconds(1));
  EXPECT_GT(seconds(4), 0.95 * seconds(2)) << "four processes on two cores are no faster than two";
  EXPECT_GE(cores_of_this_machine().shared_cores, 1);
}

TEST(NumberTypes, HaveShortNames) {
  EXPECT_EQ(number_type("fp16"), NumberType::kFloat16);
  EXPECT_EQ(number_type("bfloat16"), NumberType::kBfloat16);
  EXPECT_THROW(number_type("int8"), UsageError);
}

}  // namespace
}  // namespace trireme
