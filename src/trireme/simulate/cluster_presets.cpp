// Cluster presets. Sources of the numbers: docs/cost_model.md.
#include <fmt/format.h>

#include <filesystem>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/mesh/cluster_file.h"
#include "trireme/simulate/cluster.h"

namespace trireme {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr uint64_t kMostFileBytes = uint64_t{16} << 20;

/// Errors in percent, from docs/accuracy.md; the test that generates that page checks them.
Evidence published(int runs, double mean, double worst, int papers = 0) {
  return {.runs = runs, .mean_error = mean / 100, .worst_error = worst / 100, .is_published = true, .papers = papers};
}

Cluster v100(std::string name) {
  return {
      .name = std::move(name),
      .device = {.name = "V100",
                 .peak_flops = {15.7 * kTera, 125 * kTera, 0, 0},
                 .memory_bytes = 16 * kGiB,
                 .memory_bandwidth = 900 * kGiga,
                 .units = 80,
                 .product_efficiency = 0.97,
                 .product_half_depth = 517,
                 .memory_efficiency = 0.95,
                 .attention_efficiency = 0.32,
                 .kernel_us = 0.5,
                 .step_seconds = 0.0002},
      .devices_per_host = 8,
      .inside = {.bandwidth = 150 * kGiga, .efficiency = 0.667, .latency_us = 3, .ramp_us = 77, .is_switched = false},
      .between = {.bandwidth = 3.125 * kGiga, .efficiency = 0.95, .latency_us = 20, .ramp_us = 100},
      .stack = {.overlaps_gradients = false, .overlaps_messages = false},
      .evidence = published(25, 4.96, 17.2)};
}

Cluster summit() {
  Cluster c = v100("summit");
  c.evidence = {};
  c.devices_per_host = 6;
  c.inside.bandwidth = 100 * kGiga;
  c.between.bandwidth = 23 * kGiga;
  c.between.latency_us = 10;
  return c;
}

Cluster a100() {
  return {.name = "a100-80gb",
          .device = {.name = "A100",
                     .peak_flops = {156 * kTera, 312 * kTera, 312 * kTera, 0},
                     .memory_bytes = 80 * kGiB,
                     .memory_bandwidth = 2039 * kGiga,
                     .units = 108,
                     .product_efficiency = 0.812,
                     .product_half_depth = 235,
                     .memory_efficiency = 0.84,
                     .attention_efficiency = 0.385,
                     .kernel_us = 25,
                     .step_seconds = 0.0065},
          .devices_per_host = 8,
          .inside = {.bandwidth = 300 * kGiga, .efficiency = 1, .latency_us = 3, .ramp_us = 5},
          .between = {.bandwidth = 200 * kGiga, .efficiency = 0.63, .latency_us = 6, .ramp_us = 100},
          .stack = {.flash_attention = true,
                    .fused_half_only = true,
                    .fused_update = false,
                    .overlaps_gradients = false,
                    .overlaps_messages = false,
                    .eager_traffic = 4},
          .evidence = published(104, 6.37, 23.42, 6)};
}

Cluster h100() {
  return {.name = "h100-80gb",
          .device = {.name = "H100",
                     .peak_flops = {494 * kTera, 989 * kTera, 989 * kTera, 1979 * kTera},
                     .memory_bytes = 80 * kGiB,
                     .memory_bandwidth = 3350 * kGiga,
                     .units = 132,
                     .product_efficiency = 0.696,
                     .product_half_depth = 300,
                     .memory_efficiency = 0.85,
                     .attention_efficiency = 0.184,
                     .kernel_us = 25,
                     .step_seconds = 0.02},
          .devices_per_host = 8,
          .inside = {.bandwidth = 450 * kGiga, .efficiency = 0.82, .latency_us = 3.5, .ramp_us = 100, .sum_gain = 1.28},
          .between = {.bandwidth = 400 * kGiga, .efficiency = 0.7, .latency_us = 11, .ramp_us = 100},
          .stack = {.flash_attention = true, .overlaps_tensor = true, .eager_traffic = 3, .gated_traffic = 4.15},
          .evidence = published(33, 8.53, 20.6, 4)};
}

Cluster h200() {
  Cluster c = h100();
  c.name = "h200-141gb";
  c.device.name = "H200";
  c.device.memory_bytes = 141 * kGiga;
  c.device.memory_bandwidth = 4800 * kGiga;
  // Fitted to one device with compiled operators, which have less overhead than the frameworks of the H100 rows.
  c.device.product_efficiency = 0.8;
  c.device.product_half_depth = 127;
  c.device.memory_efficiency = 0.695;
  c.device.attention_efficiency = 0.22;
  c.device.kernel_us = 11;
  c.device.step_seconds = 0.0005;
  c.evidence = published(3, 2.33, 5.1);
  return c;
}

Cluster laptop() {
  return {.name = "laptop",
          .device = {.name = "core",
                     .peak_flops = {0.1 * kTera, 0.1 * kTera, 0.1 * kTera, 0},
                     .memory_bytes = 4 * kGiB,
                     .memory_bandwidth = 12 * kGiga,
                     .units = 1,
                     .product_efficiency = 0.7,
                     .product_half_depth = 30,
                     .memory_efficiency = 0.7,
                     .attention_efficiency = 0.3,
                     .kernel_us = 8,
                     .step_seconds = 0.001},
          .devices_per_host = 4,
          .num_hosts = 1,
          .inside = {.bandwidth = 5 * kGiga, .efficiency = 1, .latency_us = 2, .ramp_us = 0},
          .between = {},
          .stack = {.flash_attention = true},
          .evidence = {}};
}

}  // namespace

const std::vector<Cluster>& cluster_presets() {
  static const std::vector<Cluster> all = {v100("v100-16gb"), summit(), a100(), h100(), h200(), laptop()};
  return all;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Cluster& cluster : cluster_presets()) names.push_back(cluster.name);
  names.emplace_back(kThisMachine);
  return names;
}

Cluster find_cluster(const std::string& name_or_path) {
  for (const Cluster& cluster : cluster_presets()) {
    if (cluster.name == name_or_path) return cluster;
  }
  if (name_or_path == kThisMachine) return this_machine();
  std::error_code ignored;
  if (std::filesystem::is_regular_file(name_or_path, ignored)) {
    return cluster_from_json(read_whole_file(name_or_path, kMostFileBytes), name_or_path);
  }
  const std::vector<std::string> names = preset_names();
  const auto meant = nearest(name_or_path, names);
  throw UsageError(fmt::format("{} is neither a known cluster nor a file", name_or_path),
                   meant ? fmt::format("did you mean {}?", *meant) : "known: " + join(names, ", "));
}

std::optional<Cluster> measured_cluster(bool of_cores) {
  const std::string path = ClusterFile::default_path().string();
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return std::nullopt;
  if (!ClusterFile::load(path).others.contains("device")) return std::nullopt;
  Cluster cluster = find_cluster(path);
  return (cluster.shared_cores > 0) == of_cores ? std::optional(std::move(cluster)) : std::nullopt;
}

std::vector<Cluster> find_clusters(const std::string& names) {
  std::vector<Cluster> kinds;
  for (const std::string_view name : split(names, '+')) {
    if (name.empty()) {
      throw UsageError(fmt::format("cluster {}: a name is missing beside a +", names),
                       "several kinds of hosts are written a100-80gb+v100-16gb");
    }
    kinds.push_back(find_cluster(std::string(name)));
  }
  if (kinds.empty()) throw UsageError("no cluster is named", "known: " + join(preset_names(), ", "));
  for (const Cluster& kind : kinds) {
    if (kinds.size() == 1 || kind.between.bandwidth > 0) continue;
    throw UsageError(fmt::format("cluster {}: {} has no network between hosts (between.gb_s)", names, kind.name),
                     "take it alone, or say in a cluster file how it is linked with others");
  }
  NetworkLink slowest = kinds.front().between;
  for (const Cluster& kind : kinds) {
    if (kind.between.effective() < slowest.effective()) slowest = kind.between;
  }
  for (Cluster& kind : kinds) kind.between = slowest;
  return kinds;
}

}  // namespace trireme
