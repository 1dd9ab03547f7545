// Cluster files: the JSON that `trireme bench comm --write-cluster` writes, plus devices and software.
//
//   {"preset": "a100-80gb", "devices_per_host": 4, "between": {"gb_s": 12.5}}
//
// Units of the file: TFLOP/s, GB, GB/s (decimal), microseconds.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/mesh/cluster_file.h"
#include "trireme/simulate/cluster.h"

namespace trireme {
namespace {

constexpr std::array kTypes = {NumberType::kFloat32, NumberType::kFloat16, NumberType::kBfloat16, NumberType::kFp8};

/// Rounds to four digits, the precision of the measurements.
double rounded(double value) {
  if (value == 0) return 0;
  const double unit = std::pow(10, std::floor(std::log10(std::abs(value))) - 3);
  return unit >= 1 ? std::round(value / unit) * unit : std::round(value / unit) / std::round(1 / unit);
}

// Each part's keys are listed once, for reading and writing: `visit(key, member, unit)`.

template <typename DeviceType, typename Visit>
void visit_device(DeviceType& d, const Visit& visit) {
  visit("memory_gb", d.memory_bytes, kGiga);
  visit("memory_gb_s", d.memory_bandwidth, kGiga);
  visit("offload_gb_s", d.offload_bandwidth, kGiga);
  visit("units", d.units, 1);
  visit("product_efficiency", d.product_efficiency, 1);
  visit("product_half_depth", d.product_half_depth, 1);
  visit("memory_efficiency", d.memory_efficiency, 1);
  visit("attention_efficiency", d.attention_efficiency, 1);
  visit("convolution_efficiency", d.convolution_efficiency, 1);
  visit("update_efficiency", d.update_efficiency, 1);
  visit("kernel_us", d.kernel_us, 1);
  visit("step_seconds", d.step_seconds, 1);
}

template <typename LinkType, typename Visit>
void visit_link(LinkType& link, const Visit& visit) {
  visit("gb_s", link.bandwidth, kGiga);
  visit("efficiency", link.efficiency, 1);
  visit("latency_us", link.latency_us, 1);
  visit("ramp_us", link.ramp_us, 1);
  visit("sum_gain", link.sum_gain, 1);
  visit("switched", link.is_switched, 1);
}

template <typename StackType, typename Visit>
void visit_stack(StackType& s, const Visit& visit) {
  visit("flash_attention", s.flash_attention, 1);
  visit("fused_half_only", s.fused_half_only, 1);
  visit("fused_update", s.fused_update, 1);
  visit("overlaps_gradients", s.overlaps_gradients, 1);
  visit("overlaps_tensor", s.overlaps_tensor, 1);
  visit("overlaps_messages", s.overlaps_messages, 1);
  visit("eager_traffic", s.eager_traffic, 1);
  visit("activation_share", s.activation_share, 1);
  visit("gated_share", s.gated_share, 1);
  visit("gated_traffic", s.gated_traffic, 1);
  visit("logit_bytes", s.logit_bytes, 1);
  visit("embedding_bytes", s.embedding_bytes, 1);
  visit("tensor_bytes", s.tensor_bytes, 1);
  visit("parameter_bytes", s.parameter_bytes, 1);
  visit("sums_in_tree", s.sums_in_tree, 1);
  visit("loss_traffic", s.loss_traffic, 1);
  visit("accumulation_bytes", s.accumulation_bytes, 1);
  visit("tensor_us", s.tensor_us, 1);
  visit("loss_gb", s.loss_bytes, kGiga);
  visit("fixed_gb", s.fixed_bytes, kGiga);
  visit("tensor_rank_gb", s.tensor_rank_bytes, kGiga);
}

template <typename EvidenceType, typename Visit>
void visit_evidence(EvidenceType& e, const Visit& visit) {
  visit("runs", e.runs, 1);
  visit("mean_error", e.mean_error, 1);
  visit("worst_error", e.worst_error, 1);
}

/// Sets the members whose keys are present.
auto reading(JsonReader& reader) {
  return [&reader](const char* key, auto& value, double unit) {
    if (reader.find(key) == nullptr) return;
    reader(key, value);
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, int>) {
      if (value > 1'000'000) reader.fail(fmt::format("\"{}\" = {} is more than 1,000,000", key, value));
    } else if constexpr (std::is_same_v<std::decay_t<decltype(value)>, double>) {
      value *= unit;
    }
  };
}

auto writing(Json& json) {
  return [&json](const char* key, const auto& value, double unit) {
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, double>) {
      json[key] = rounded(value / unit);
    } else {
      json[key] = value;
    }
  };
}

void read_device(JsonReader reader, Device& device) {
  reader.maybe("name", device.name);
  if (reader.find("peak_tflops") != nullptr) {
    JsonReader types = reader.inside("peak_tflops");
    for (const NumberType type : kTypes) {
      reading(types)(std::string(name_of(type)).c_str(), device.peak_flops[static_cast<size_t>(type)], kTera);
    }
    types.finish();
  }
  visit_device(device, reading(reader));
  reader.finish();
}

/// Reads the link that `bench comm` measured for a transport.
void measured_link(const ClusterFile& file, std::string_view transport, NetworkLink& link) {
  for (const TransportCost& cost : file.transports) {
    if (cost.transport != transport || cost.link.us_per_byte <= 0) continue;
    link.bandwidth = 1e6 / cost.link.us_per_byte;
    link.efficiency = 1;
    link.latency_us = cost.link.latency_us;
    link.ramp_us = 0;
    return;
  }
}

}  // namespace

Cluster cluster_from_json(std::string_view text, const std::string& name) {
  const Json json = parse_json(text, fmt::format("cluster file {} is not JSON", name), "mend it there");
  JsonReader reader(json, "cluster file " + name);
  Cluster cluster;
  std::string preset;
  reader.maybe("preset", preset);
  if (!preset.empty()) {
    const auto& all = cluster_presets();
    const auto found = std::find_if(all.begin(), all.end(), [&](const Cluster& known) { return known.name == preset; });
    if (found == all.end()) {
      std::vector<std::string> names;
      for (const Cluster& known : all) names.push_back(known.name);
      reader.fail(fmt::format("preset {} is not known", preset), "known: " + join(names, ", "));
    }
    cluster = *found;
    for (const char* constants : {"device", "inside", "between", "stack", "transports"}) {
      if (json.contains(constants)) cluster.evidence = {};
    }
  }
  cluster.name = name;
  reader.maybe("name", cluster.name);
  reading(reader)("devices_per_host", cluster.devices_per_host, 1);
  reading(reader)("hosts", cluster.num_hosts, 1);
  reading(reader)("shared_cores", cluster.shared_cores, 1);
  reader.maybe("sharing_cost", cluster.sharing_cost);
  if (reader.find("transports") != nullptr) {  // measured by bench comm
    const ClusterFile measured = ClusterFile::from_json(text, name);
    // CPU ranks communicate through shared memory, GPUs through NCCL.
    const bool of_cores = cluster.shared_cores > 0 || preset.empty() || preset == "laptop";
    measured_link(measured, of_cores ? "shared memory" : "nccl", cluster.inside);
    measured_link(measured, "tcp", cluster.between);
    if (preset.empty() && !json.contains("devices_per_host") && measured.cores > 0) {
      cluster.devices_per_host = measured.cores;
      if (!json.contains("hosts")) cluster.num_hosts = 1;
    }
  }
  for (const char* key : {"version", "host", "cores", "date", "products"}) reader.find(key);
  if (reader.find("device") != nullptr) {
    read_device(reader.inside("device"), cluster.device);
  } else if (preset.empty()) {
    throw UsageError(fmt::format("cluster file {} does not say what its devices can do: \"device\" is missing", name),
                     "give \"device\": {\"peak_tflops\": {…}, \"memory_gb\": …, \"memory_gb_s\": …}, or start from a "
                     "preset: \"preset\": \"laptop\"");
  }
  const auto read_part = [&](const char* key, auto& part, const auto& visit_part) {
    if (reader.find(key) == nullptr) return;
    JsonReader inside = reader.inside(key);
    visit_part(part, reading(inside));
    inside.finish();
  };
  const auto links = [](NetworkLink& link, const auto& visit) { visit_link(link, visit); };
  read_part("inside", cluster.inside, links);
  read_part("between", cluster.between, links);
  read_part("stack", cluster.stack, [](Stack& stack, const auto& visit) { visit_stack(stack, visit); });
  read_part("evidence", cluster.evidence, [](Evidence& e, const auto& visit) { visit_evidence(e, visit); });
  reader.finish();
  cluster.check();
  return cluster;
}

std::map<std::string, std::string> device_keys(const Cluster& cluster, const std::string& preset) {
  Json peaks = Json::object();
  for (const NumberType type : kTypes) {
    const double peak = cluster.device.peak(type);
    if (peak > 0) peaks[std::string(name_of(type))] = rounded(peak / kTera);
  }
  Json device = {{"name", cluster.device.name}, {"peak_tflops", peaks}}, stack, evidence;
  visit_device(cluster.device, writing(device));
  visit_stack(cluster.stack, writing(stack));
  visit_evidence(cluster.evidence, writing(evidence));
  std::map<std::string, std::string> keys = {{"device", device.dump()},
                                             {"stack", stack.dump()},
                                             {"evidence", evidence.dump()},
                                             {"devices_per_host", std::to_string(cluster.devices_per_host)},
                                             {"hosts", std::to_string(cluster.num_hosts)},
                                             {"shared_cores", std::to_string(cluster.shared_cores)},
                                             {"sharing_cost", Json(rounded(cluster.sharing_cost)).dump()}};
  if (cluster.shared_cores > 0) keys["inside"] = Json{{"sum_gain", rounded(cluster.inside.sum_gain)}}.dump();
  if (!preset.empty()) keys["preset"] = Json(preset).dump();
  return keys;
}

}  // namespace trireme
