// Fits recover the constants that generated the step times.
#include "trireme/simulate/fit_device.h"

#include <gtest/gtest.h>

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/mesh/cluster_file.h"
#include "trireme/simulate/simulate.h"

namespace trireme {
namespace {

Job gpt(int64_t layers, int64_t hidden, int64_t seq, int64_t batch) {
  Job job;
  job.model = {.layers = layers,
               .hidden = hidden,
               .heads = hidden / 64,
               .kv_heads = hidden / 64,
               .ffn = 4 * hidden,
               .seq = seq,
               .vocab = 50257};
  job.layout.micro_batch = job.layout.global_batch = batch;
  return job;
}

std::vector<Job> calibration() {
  return {gpt(2, 256, 256, 4),   gpt(12, 256, 256, 4),  gpt(2, 1024, 1024, 8), gpt(6, 1024, 1024, 8),
          gpt(4, 768, 1024, 32), gpt(4, 1600, 1024, 8), gpt(2, 768, 4096, 4),  gpt(2, 2048, 512, 16)};
}

Cluster other_h200() {
  Cluster cluster = find_cluster("h200-141gb");
  cluster.device.product_efficiency = 0.6;
  cluster.device.product_half_depth = 200;
  cluster.device.memory_efficiency = 0.9;
  cluster.device.attention_efficiency = 0.4;
  cluster.device.kernel_us = 3;
  cluster.device.step_seconds = 0.002;
  cluster.stack.activation_share = 0.75;
  cluster.stack.logit_bytes = 2;
  cluster.stack.parameter_bytes = 3;
  cluster.stack.fixed_bytes = 1.2e9;
  return cluster;
}

std::vector<MeasuredStep> measured_on(const Cluster& cluster, const std::vector<Job>& jobs) {
  std::vector<MeasuredStep> steps;
  for (const Job& job : jobs) {
    const Simulation s = simulate(job, cluster);
    steps.push_back({"step", job, s.step_seconds, s.memory_bytes()});
  }
  return steps;
}

TEST(FitDeviceTest, FindsTheDeviceThatWasMeasured) {
  const Cluster start = find_cluster("h200-141gb");
  const auto steps = measured_on(other_h200(), calibration());
  EXPECT_GT(compare_with(start, steps).time_error, 0.15);
  const DeviceFit fit = fit_device(start, steps);
  EXPECT_LT(fit.time_error, 0.01);
  EXPECT_LT(fit.memory_error, 0.005);
  EXPECT_NEAR(fit.cluster.stack.activation_share, 0.75, 0.02);
  EXPECT_NEAR(fit.cluster.stack.fixed_bytes, 1.2e9, 0.1e9);
  // Models that were not part of the fit.
  const std::vector<Job> unseen = {gpt(12, 768, 1024, 64), gpt(36, 1280, 1024, 16), gpt(48, 1600, 1024, 16)};
  const DeviceFit predicted = compare_with(fit.cluster, measured_on(other_h200(), unseen));
  EXPECT_LT(predicted.worst_time_error, 0.03);
  EXPECT_LT(predicted.worst_memory_error, 0.02);
}

TEST(FitDeviceTest, NoiseMovesTheConstantsLittle) {
  auto steps = measured_on(other_h200(), calibration());
  for (size_t i = 0; i < steps.size(); ++i) steps[i].seconds *= i % 2 == 0 ? 1.04 : 0.96;
  const DeviceFit fit = fit_device(find_cluster("h200-141gb"), steps);
  const DeviceFit predicted = compare_with(fit.cluster, measured_on(other_h200(), {gpt(36, 1280, 1024, 16)}));
  EXPECT_LT(predicted.worst_time_error, 0.08);
}

// Constants in the middle would be 3 % too low for half of the trainings.
TEST(FitDeviceTest, MemoryOnCoresErrsOnTheSafeSide) {
  Cluster cores = other_h200();
  cores.shared_cores = 4;
  auto steps = measured_on(cores, calibration());
  for (size_t i = 0; i < steps.size(); ++i) steps[i].memory_bytes *= i % 2 == 0 ? 1.03 : 0.97;
  const DeviceFit fit = fit_device(cores, steps);
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_GT(fit.steps[i].memory_bytes, 0.985 * steps[i].memory_bytes) << i;
    EXPECT_LT(fit.steps[i].memory_bytes, 1.065 * steps[i].memory_bytes) << i;
  }
}

TEST(FitDeviceTest, CoresTellOfGatesAndTensorsInParts) {
  Cluster cores = other_h200();
  cores.shared_cores = 4;
  const Cluster start = cores;
  cores.device.update_efficiency = 2.5;  // caches hold the optimizer state
  cores.stack.gated_share = 2;
  cores.stack.gated_traffic = 3;
  cores.stack.tensor_us = 20;
  cores.stack.tensor_rank_bytes = 3e8;
  cores.stack.tensor_bytes = 20;
  std::vector<Job> jobs = calibration();
  for (const size_t i : {0u, 3u, 4u}) {
    jobs.push_back(jobs[i]);
    jobs.back().layout.tp = 2;
    jobs.push_back(jobs[i]);
    jobs.back().model.kind = ModelKind::kLlama;
  }
  const DeviceFit fit = fit_device(start, measured_on(cores, jobs));
  EXPECT_LT(fit.time_error, 0.02);
  EXPECT_LT(fit.memory_error, 0.01);
  EXPECT_NEAR(fit.cluster.stack.gated_share, 2, 0.2);
  EXPECT_NEAR(fit.cluster.stack.tensor_rank_bytes, 3e8, 0.5e8);
  EXPECT_GT(fit.cluster.device.update_efficiency, 1);
  // Constants that no step identifies keep their values.
  const DeviceFit other = fit_device(start, measured_on(cores, calibration()));
  EXPECT_EQ(other.cluster.stack.gated_share, start.stack.gated_share);
  EXPECT_EQ(other.cluster.stack.tensor_rank_bytes, start.stack.tensor_rank_bytes);
}

TEST(FitDeviceTest, OneStepIsMetWithoutMemory) {
  auto steps = measured_on(other_h200(), {gpt(4, 768, 1024, 8)});
  steps[0].memory_bytes = 0;
  const Cluster start = find_cluster("h200-141gb");
  const DeviceFit fit = fit_device(start, steps);
  EXPECT_LT(fit.time_error, 0.01);
  EXPECT_EQ(fit.cluster.stack, start.stack);
  EXPECT_THROW(fit_device(start, {}), UsageError);
  steps[0].seconds = 0;
  EXPECT_THROW(fit_device(start, steps), UsageError);
}

TEST(FitDeviceTest, KeysOfAFileGiveTheDeviceBack) {
  Cluster cluster = other_h200();
  cluster.devices_per_host = 1;
  cluster.num_hosts = 1;
  cluster.shared_cores = 2;
  cluster.sharing_cost = 0.25;
  ClusterFile file;
  file.others = device_keys(cluster, "h200-141gb");
  const Cluster read = cluster_from_json(file.to_json(), "h200.json");
  EXPECT_EQ(read.device, cluster.device);
  EXPECT_EQ(read.stack, cluster.stack);
  EXPECT_EQ(read.num_hosts, 1);
  EXPECT_EQ(read.shared_cores, 2);
  EXPECT_EQ(read.sharing_cost, 0.25);
  EXPECT_EQ(ClusterFile::from_json(file.to_json(), "h200.json").others, file.others);
}

}  // namespace
}  // namespace trireme
