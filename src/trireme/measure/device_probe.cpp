#include "trireme/measure/device_probe.h"

#include <algorithm>

#include "trireme/base/json.h"
#include "trireme/measure/machine.h"
#include "trireme/measure/programs.h"

namespace trireme::measure {
namespace {

// A probe's products are of finite depth, on a machine that does other things as well: trainings reach a little more.
constexpr double kBeyondProbe = 1.15;

std::string preset_of(bool on_gpu) { return on_gpu ? "h200-141gb" : "laptop"; }

/// Links of the file, or else of the preset; peaks and bandwidth as probed.
Cluster cluster_of(const ClusterFile& file, const nlohmann::json& probed, DeviceProbe& probe) {
  ClusterFile with_preset = file;
  with_preset.others = {{"preset", nlohmann::json(preset_of(probe.on_gpu)).dump()}};
  Cluster cluster = cluster_from_json(with_preset.to_json(), "this machine");
  cluster.device.name = probed.at("name");
  cluster.device.units = probed.at("units");
  cluster.device.memory_bytes = probed.at("memory_bytes");
  cluster.device.memory_bandwidth = probed.at("memory_bytes_per_second");
  cluster.device.memory_efficiency = 0.8;
  cluster.device.product_efficiency = 0.9;
  cluster.device.kernel_us = probe.launch_us;
  cluster.devices_per_host = probed.at("devices");
  if (!probe.on_gpu) {
    cluster.shared_cores = cluster.devices_per_host;
    cluster.devices_per_host *= kProcessesACore;
  }
  cluster.num_hosts = 1;
  cluster.stack.fused_half_only = false;
  cluster.stack.eager_traffic = cluster.stack.gated_traffic = 1;
  cluster.stack.sums_in_tree = true;
  if (probe.on_gpu) {  // as models/cuda computes the loss
    cluster.stack.logit_bytes = 2;
    cluster.stack.loss_bytes = double(int64_t{2} << 30);
  }
  auto& peaks = cluster.device.peak_flops;
  const double data_sheet_fp8 = peaks[static_cast<size_t>(NumberType::kFp8)];
  peaks.fill(0);
  for (const ProbedProduct& product : probe.products) {
    double& peak = peaks[static_cast<size_t>(number_type(product.type))];
    peak = std::max(peak, product.tflops * 1e12 * (probe.on_gpu ? 1 : kBeyondProbe));
  }
  if (probe.on_gpu) peaks[static_cast<size_t>(NumberType::kFp8)] = data_sheet_fp8;
  return cluster;
}

}  // namespace

DeviceProbe parse_probe(const nlohmann::json& probed, const ClusterFile& file, bool on_gpu) {
  DeviceProbe probe;
  probe.on_gpu = on_gpu;
  probe.launch_us = probed.at("launch_seconds").get<double>() * 1e6;
  for (const nlohmann::json& said : probed.at("products")) {
    probe.products.push_back({said.at("type"), said.at("m"), said.at("n"), said.at("k"), said.at("tflops")});
  }
  probe.cluster = cluster_of(file, probed, probe);
  return probe;
}

DeviceProbe probe_device(const std::filesystem::path& cluster_file, bool on_gpu) {
  const ClusterFile file = load_cluster_file(cluster_file);
  return parse_probe(
      run_tensor_program({"probe-device", "--device", on_gpu ? "cuda" : "cpu"}, 1, {{"OMP_NUM_THREADS", "1"}}), file,
      on_gpu);
}

void keep_device(const std::filesystem::path& cluster_file, const DeviceProbe& probe, const Cluster& cluster) {
  ClusterFile measured;
  measured.others = device_keys(cluster, preset_of(probe.on_gpu));
  Json products = Json::array();
  for (const ProbedProduct& p : probe.products) {
    products.push_back({{"type", p.type}, {"m", p.m}, {"n", p.n}, {"k", p.k}, {"tflops", p.tflops}});
  }
  measured.others["products"] = products.dump();
  keep_in_cluster_file(cluster_file, measured);
}

Json device_json(const DeviceProbe& probe, const Cluster& cluster) {
  Json json;
  for (const auto& [key, value] : device_keys(cluster, preset_of(probe.on_gpu))) json[key] = Json::parse(value);
  return json;
}

}  // namespace trireme::measure
