#include "trireme/simulate/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"

namespace trireme {
void Cluster::check() const {
  std::vector<std::string> holes;
  const auto positive = [&](double value, std::string_view what) {
    if (!(value > 0) || !std::isfinite(value)) holes.emplace_back(what);
  };
  const auto fraction = [&](double value, std::string_view what) {
    if (!(value > 0 && value <= 1)) holes.emplace_back(fmt::format("{} (a share above 0, at most 1)", what));
  };
  const auto cost = [&](double value, std::string_view what) {
    if (!(value >= 0) || !std::isfinite(value)) holes.emplace_back(what);
  };
  positive(*std::max_element(device.peak_flops.begin(), device.peak_flops.end()), "device.peak_tflops");
  positive(device.memory_bytes, "device.memory_gb");
  positive(device.memory_bandwidth, "device.memory_gb_s");
  positive(device.offload_bandwidth, "device.offload_gb_s");
  positive(device.units, "device.units");
  fraction(device.product_efficiency, "device.product_efficiency");
  fraction(device.memory_efficiency, "device.memory_efficiency");
  fraction(device.attention_efficiency, "device.attention_efficiency");
  fraction(device.convolution_efficiency, "device.convolution_efficiency");
  positive(device.update_efficiency, "device.update_efficiency");
  cost(device.product_half_depth, "device.product_half_depth");
  cost(device.kernel_us, "device.kernel_us");
  cost(device.step_seconds, "device.step_seconds");
  positive(stack.activation_share, "stack.activation_share");
  cost(stack.gated_share, "stack.gated_share");
  positive(stack.gated_traffic, "stack.gated_traffic");
  cost(stack.logit_bytes, "stack.logit_bytes");
  cost(stack.loss_bytes, "stack.loss_gb");
  cost(stack.embedding_bytes, "stack.embedding_bytes");
  cost(stack.tensor_bytes, "stack.tensor_bytes");
  cost(stack.parameter_bytes, "stack.parameter_bytes");
  cost(stack.fixed_bytes, "stack.fixed_gb");
  cost(stack.tensor_rank_bytes, "stack.tensor_rank_gb");
  positive(stack.loss_traffic, "stack.loss_traffic");
  cost(stack.accumulation_bytes, "stack.accumulation_bytes");
  cost(stack.tensor_us, "stack.tensor_us");
  if (!(sharing_cost >= 0 && sharing_cost < 1)) holes.emplace_back("sharing_cost (a share from 0, below 1)");
  cost(evidence.mean_error, "evidence.mean_error");
  cost(evidence.worst_error, "evidence.worst_error");
  positive(devices_per_host, "devices_per_host");
  cost(num_hosts, "hosts");
  const auto link = [&](const NetworkLink& level, const char* name) {
    positive(level.bandwidth, fmt::format("{}.gb_s", name));
    fraction(level.efficiency, fmt::format("{}.efficiency", name));
    cost(level.latency_us, fmt::format("{}.latency_us", name));
    cost(level.ramp_us, fmt::format("{}.ramp_us", name));
    positive(level.sum_gain, fmt::format("{}.sum_gain", name));
  };
  if (devices_per_host > 1) link(inside, "inside");
  if (num_hosts != 1) link(between, "between");
  if (holes.empty()) return;
  throw UsageError(fmt::format("cluster {}: missing or impossible: {}", name, join(holes, ", ")),
                   "give them, or start from a preset: \"preset\": \"a100-80gb\"");
}

int Cluster::hosts_for(int64_t num_devices) const {
  const int64_t hosts = (num_devices + devices_per_host - 1) / devices_per_host;
  if (num_hosts > 0 && hosts > num_hosts) {
    throw UsageError(fmt::format("{} need {} of {}, but {} has {}", counted(num_devices, "device"),
                                 counted(hosts, "host"), devices_per_host, spoken_name(name), num_hosts),
                     fmt::format("it has {} in all", counted(int64_t{num_hosts} * devices_per_host, "device")));
  }
  return static_cast<int>(hosts);
}

}  // namespace trireme
