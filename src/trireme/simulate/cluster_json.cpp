// Clusters as JSON: the same file that `trireme bench comm --write-cluster` writes, with what the devices can do.
//
//   {"preset": "a100-80gb", "devices_per_host": 4, "between": {"gb_s": 12.5}}
//
// Units are those that people use: TFLOP/s, GB, GB/s (decimal), microseconds.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/json_fault.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/mesh/cluster_file.h"
#include "trireme/simulate/cluster.h"

namespace trireme {
namespace {

constexpr std::array kTypes = {NumberType::kFloat32, NumberType::kFloat16, NumberType::kBfloat16, NumberType::kFp8};

/// To four digits: more were not measured.
double rounded(double value) {
  if (value == 0) return 0;
  const double unit = std::pow(10, std::floor(std::log10(std::abs(value))) - 3);
  return unit >= 1 ? std::round(value / unit) * unit : std::round(value / unit) / std::round(1 / unit);
}

/// Sets members from the keys of one object; a key that is not known is refused with the nearest one.
class Reader {
 public:
  Reader(const Json& object, std::string file, std::string where)
      : object_(object), file_(std::move(file)), where_(std::move(where)) {
    if (!object_.is_object()) fail("is not an object");
  }

  void number(const char* key, double& value, double factor = 1) {
    const Json* found = find(key);
    if (found == nullptr) return;
    if (!found->is_number()) fail(fmt::format("{} must be a number", key));
    value = found->get<double>() * factor;
  }
  void numbers(std::initializer_list<std::pair<const char*, double*>> members) {
    for (const auto& [key, value] : members) number(key, *value);
  }
  void count(const char* key, int& value) {
    double number_value = value;
    number(key, number_value);
    if (number_value < 0 || number_value > 1e6 || number_value != std::floor(number_value)) {
      fail(fmt::format("{} must be a whole number up to 1,000,000", key));
    }
    value = static_cast<int>(number_value);
  }
  void truths(std::initializer_list<std::pair<const char*, bool*>> members) {
    for (const auto& [key, value] : members) {
      const Json* found = find(key);
      if (found == nullptr) continue;
      if (!found->is_boolean()) fail(fmt::format("{} must be true or false", key));
      *value = found->get<bool>();
    }
  }
  void text(const char* key, std::string& value) {
    const Json* found = find(key);
    if (found == nullptr) return;
    if (!found->is_string()) fail(fmt::format("{} must be a text", key));
    value = found->get<std::string>();
  }
  /// What a key stands for, and that it is known; nullptr where it is not there.
  const Json* find(const char* key) {
    known_.emplace_back(key);
    const auto found = object_.find(key);
    return found == object_.end() ? nullptr : &*found;
  }
  void finish() const {
    for (const auto& [key, value] : object_.items()) {
      if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
      const auto meant = nearest(key, known_);
      throw UsageError(
          fmt::format("cluster file {}: {}{} is not known", file_, where_.empty() ? "" : where_ + ".", key),
          meant ? fmt::format("did you mean {}?", *meant) : "known: " + join(known_, ", "));
    }
  }
  [[noreturn]] void fail(const std::string& problem, const std::string& cure = {}) const {
    throw UsageError(fmt::format("cluster file {}: {}{}{}", file_, where_, where_.empty() ? "" : ": ", problem), cure);
  }

 private:
  const Json& object_;
  std::string file_, where_;
  std::vector<std::string> known_;
};

void read_device(const Json& json, const std::string& file, Device& device) {
  Reader reader(json, file, "device");
  reader.text("name", device.name);
  if (const Json* peaks = reader.find("peak_tflops")) {
    Reader types(*peaks, file, "device.peak_tflops");
    for (const NumberType type : kTypes) {
      types.number(std::string(name_of(type)).c_str(), device.peak_flops[static_cast<size_t>(type)], kTera);
    }
    types.finish();
  }
  reader.number("memory_gb", device.memory_bytes, kGiga);
  reader.number("memory_gb_s", device.memory_bandwidth, kGiga);
  reader.number("offload_gb_s", device.offload_bandwidth, kGiga);
  reader.count("units", device.units);
  reader.numbers({{"product_efficiency", &device.product_efficiency},
                  {"product_half_depth", &device.product_half_depth},
                  {"memory_efficiency", &device.memory_efficiency},
                  {"attention_efficiency", &device.attention_efficiency},
                  {"convolution_efficiency", &device.convolution_efficiency},
                  {"update_efficiency", &device.update_efficiency},
                  {"kernel_us", &device.kernel_us},
                  {"step_seconds", &device.step_seconds}});
  reader.finish();
}

void read_link(const Json& json, const std::string& file, const char* name, NetworkLink& link) {
  Reader reader(json, file, name);
  reader.number("gb_s", link.bandwidth, kGiga);
  reader.numbers({{"efficiency", &link.efficiency},
                  {"latency_us", &link.latency_us},
                  {"ramp_us", &link.ramp_us},
                  {"sum_gain", &link.sum_gain}});
  reader.truths({{"switched", &link.is_switched}});
  reader.finish();
}

void read_stack(const Json& json, const std::string& file, Stack& stack) {
  Reader reader(json, file, "stack");
  reader.truths({{"flash_attention", &stack.flash_attention},
                 {"fused_half_only", &stack.fused_half_only},
                 {"fused_update", &stack.fused_update},
                 {"overlaps_gradients", &stack.overlaps_gradients},
                 {"overlaps_tensor", &stack.overlaps_tensor},
                 {"overlaps_messages", &stack.overlaps_messages},
                 {"sums_in_tree", &stack.sums_in_tree}});
  reader.numbers({{"eager_traffic", &stack.eager_traffic},
                  {"activation_share", &stack.activation_share},
                  {"gated_share", &stack.gated_share},
                  {"gated_traffic", &stack.gated_traffic},
                  {"logit_bytes", &stack.logit_bytes},
                  {"embedding_bytes", &stack.embedding_bytes},
                  {"tensor_bytes", &stack.tensor_bytes},
                  {"parameter_bytes", &stack.parameter_bytes},
                  {"loss_traffic", &stack.loss_traffic},
                  {"accumulation_bytes", &stack.accumulation_bytes},
                  {"tensor_us", &stack.tensor_us}});
  reader.number("loss_gb", stack.loss_bytes, kGiga);
  reader.number("fixed_gb", stack.fixed_bytes, kGiga);
  reader.number("tensor_rank_gb", stack.tensor_rank_bytes, kGiga);
  reader.finish();
}

void read_evidence(const Json& json, const std::string& file, Evidence& evidence) {
  Reader reader(json, file, "evidence");
  reader.count("runs", evidence.runs);
  reader.numbers({{"mean_error", &evidence.mean_error}, {"worst_error", &evidence.worst_error}});
  reader.finish();
}

/// The link that `bench comm` measured for a transport.
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
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception&) {
    throw UsageError(fmt::format("cluster file {} is not JSON: {}", name, json_fault(text)), "mend it there");
  }
  Reader reader(json, name, "");
  Cluster cluster;
  std::string preset;
  reader.text("preset", preset);
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
  reader.text("name", cluster.name);
  reader.count("devices_per_host", cluster.devices_per_host);
  reader.count("hosts", cluster.num_hosts);
  reader.count("shared_cores", cluster.shared_cores);
  reader.numbers({{"sharing_cost", &cluster.sharing_cost}});
  if (reader.find("transports") != nullptr) {  // measured by bench comm
    const ClusterFile measured = ClusterFile::from_json(text, name);
    // Cores reach each other through memory, cards as NCCL does.
    const bool of_cores = cluster.shared_cores > 0 || preset.empty() || preset == "laptop";
    measured_link(measured, of_cores ? "shared memory" : "nccl", cluster.inside);
    measured_link(measured, "tcp", cluster.between);
    if (preset.empty() && !json.contains("devices_per_host") && measured.cores > 0) {
      cluster.devices_per_host = measured.cores;
      if (!json.contains("hosts")) cluster.num_hosts = 1;
    }
  }
  for (const char* key : {"version", "host", "cores", "date", "products"}) reader.find(key);
  const Json* device = reader.find("device");
  if (device != nullptr) {
    read_device(*device, name, cluster.device);
  } else if (preset.empty()) {
    throw UsageError(fmt::format("cluster file {} does not say what its devices can do: \"device\" is missing", name),
                     "give \"device\": {\"peak_tflops\": {…}, \"memory_gb\": …, \"memory_gb_s\": …}, or start from a "
                     "preset: \"preset\": \"laptop\"");
  }
  if (const Json* link = reader.find("inside")) read_link(*link, name, "inside", cluster.inside);
  if (const Json* link = reader.find("between")) read_link(*link, name, "between", cluster.between);
  if (const Json* stack = reader.find("stack")) read_stack(*stack, name, cluster.stack);
  if (const Json* evidence = reader.find("evidence")) read_evidence(*evidence, name, cluster.evidence);
  reader.finish();
  cluster.check();
  return cluster;
}

std::map<std::string, std::string> device_keys(const Cluster& cluster, const std::string& preset) {
  const Device& device = cluster.device;
  const Stack& stack = cluster.stack;
  Json peaks = Json::object();
  for (const NumberType type : kTypes) {
    if (device.peak(type) > 0) peaks[std::string(name_of(type))] = rounded(device.peak(type) / kTera);
  }
  const Json device_json = {{"name", device.name},
                            {"peak_tflops", peaks},
                            {"memory_gb", rounded(device.memory_bytes / kGiga)},
                            {"memory_gb_s", rounded(device.memory_bandwidth / kGiga)},
                            {"offload_gb_s", rounded(device.offload_bandwidth / kGiga)},
                            {"units", device.units},
                            {"product_efficiency", rounded(device.product_efficiency)},
                            {"product_half_depth", rounded(device.product_half_depth)},
                            {"memory_efficiency", rounded(device.memory_efficiency)},
                            {"attention_efficiency", rounded(device.attention_efficiency)},
                            {"convolution_efficiency", rounded(device.convolution_efficiency)},
                            {"update_efficiency", rounded(device.update_efficiency)},
                            {"kernel_us", rounded(device.kernel_us)},
                            {"step_seconds", rounded(device.step_seconds)}};
  const Json stack_json = {{"flash_attention", stack.flash_attention},
                           {"fused_half_only", stack.fused_half_only},
                           {"fused_update", stack.fused_update},
                           {"overlaps_gradients", stack.overlaps_gradients},
                           {"overlaps_tensor", stack.overlaps_tensor},
                           {"overlaps_messages", stack.overlaps_messages},
                           {"eager_traffic", rounded(stack.eager_traffic)},
                           {"activation_share", rounded(stack.activation_share)},
                           {"gated_share", rounded(stack.gated_share)},
                           {"gated_traffic", rounded(stack.gated_traffic)},
                           {"logit_bytes", rounded(stack.logit_bytes)},
                           {"embedding_bytes", rounded(stack.embedding_bytes)},
                           {"tensor_bytes", rounded(stack.tensor_bytes)},
                           {"parameter_bytes", rounded(stack.parameter_bytes)},
                           {"sums_in_tree", stack.sums_in_tree},
                           {"loss_traffic", rounded(stack.loss_traffic)},
                           {"accumulation_bytes", rounded(stack.accumulation_bytes)},
                           {"tensor_us", rounded(stack.tensor_us)},
                           {"loss_gb", rounded(stack.loss_bytes / kGiga)},
                           {"fixed_gb", rounded(stack.fixed_bytes / kGiga)},
                           {"tensor_rank_gb", rounded(stack.tensor_rank_bytes / kGiga)}};
  std::map<std::string, std::string> keys = {{"device", device_json.dump()},
                                             {"stack", stack_json.dump()},
                                             {"devices_per_host", std::to_string(cluster.devices_per_host)},
                                             {"hosts", std::to_string(cluster.num_hosts)},
                                             {"shared_cores", std::to_string(cluster.shared_cores)},
                                             {"sharing_cost", Json(rounded(cluster.sharing_cost)).dump()}};
  const Evidence& e = cluster.evidence;
  keys["evidence"] =
      Json{{"runs", e.runs}, {"mean_error", rounded(e.mean_error)}, {"worst_error", rounded(e.worst_error)}}.dump();
  if (cluster.shared_cores > 0) keys["inside"] = Json{{"sum_gain", rounded(cluster.inside.sum_gain)}}.dump();
  if (!preset.empty()) keys["preset"] = Json(preset).dump();
  return keys;
}

}  // namespace trireme
