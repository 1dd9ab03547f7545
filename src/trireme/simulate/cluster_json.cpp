// Clusters as JSON: the same file that `trireme bench comm --write-cluster` writes, with what the devices can do.
//
//   {"preset": "a100-80gb", "devices_per_host": 4, "between": {"gb_s": 12.5}}
//
// Units are those that people use: TFLOP/s, GB, GB/s (decimal), microseconds.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/mesh/cluster_file.h"
#include "trireme/simulate/cluster.h"

namespace trireme {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kGiga = 1e9, kTera = 1e12;

/// Sets members from the keys of one object; a key that is not known is refused with the nearest one.
class Reader {
 public:
  Reader(const Json& object, std::string file, std::string where)
      : object_(object), file_(std::move(file)), where_(std::move(where)) {
    if (!object_.is_object()) fail("is not an object");
  }

  void number(const char* key, double& value, double factor = 1) {
    known_.emplace_back(key);
    const auto found = object_.find(key);
    if (found == object_.end()) return;
    if (!found->is_number()) fail(fmt::format("{} must be a number", key));
    value = found->get<double>() * factor;
  }
  void count(const char* key, int& value) {
    double number_value = value;
    number(key, number_value);
    if (number_value < 0 || number_value > 1e6 || number_value != std::floor(number_value)) {
      fail(fmt::format("{} must be a whole number up to 1,000,000", key));
    }
    value = static_cast<int>(number_value);
  }
  void truth(const char* key, bool& value) {
    known_.emplace_back(key);
    const auto found = object_.find(key);
    if (found == object_.end()) return;
    if (!found->is_boolean()) fail(fmt::format("{} must be true or false", key));
    value = found->get<bool>();
  }
  void text(const char* key, std::string& value) {
    known_.emplace_back(key);
    const auto found = object_.find(key);
    if (found == object_.end()) return;
    if (!found->is_string()) fail(fmt::format("{} must be a text", key));
    value = found->get<std::string>();
  }
  const Json* object(const char* key) {
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
  [[noreturn]] void fail(const std::string& problem) const {
    throw UsageError(fmt::format("cluster file {}: {}{}{}", file_, where_, where_.empty() ? "" : ": ", problem));
  }

 private:
  const Json& object_;
  std::string file_, where_;
  std::vector<std::string> known_;
};

void read_device(const Json& json, const std::string& file, Device& device) {
  Reader reader(json, file, "device");
  reader.text("name", device.name);
  if (const Json* peaks = reader.object("peak_tflops")) {
    Reader types(*peaks, file, "device.peak_tflops");
    for (const NumberType type :
         {NumberType::kFloat32, NumberType::kFloat16, NumberType::kBfloat16, NumberType::kFp8}) {
      types.number(std::string(name_of(type)).c_str(), device.peak_flops[static_cast<size_t>(type)], kTera);
    }
    types.finish();
  }
  reader.number("memory_gb", device.memory_bytes, kGiga);
  reader.number("memory_gb_s", device.memory_bandwidth, kGiga);
  reader.count("units", device.units);
  reader.number("product_efficiency", device.product_efficiency);
  reader.number("product_half_depth", device.product_half_depth);
  reader.number("memory_efficiency", device.memory_efficiency);
  reader.number("attention_efficiency", device.attention_efficiency);
  reader.number("kernel_us", device.kernel_us);
  reader.number("step_seconds", device.step_seconds);
  reader.finish();
}

void read_link(const Json& json, const std::string& file, const char* name, Link& link) {
  Reader reader(json, file, name);
  reader.number("gb_s", link.bandwidth, kGiga);
  reader.number("efficiency", link.efficiency);
  reader.number("latency_us", link.latency_us);
  reader.number("ramp_us", link.ramp_us);
  reader.number("sum_gain", link.sum_gain);
  reader.truth("switched", link.is_switched);
  reader.finish();
}

void read_stack(const Json& json, const std::string& file, Stack& stack) {
  Reader reader(json, file, "stack");
  reader.truth("flash_attention", stack.flash_attention);
  reader.truth("fused_half_only", stack.fused_half_only);
  reader.truth("fused_update", stack.fused_update);
  reader.truth("overlaps_gradients", stack.overlaps_gradients);
  reader.truth("overlaps_tensor", stack.overlaps_tensor);
  reader.truth("overlaps_messages", stack.overlaps_messages);
  reader.finish();
}

/// The link that `bench comm` measured for a transport.
void measured_link(const ClusterFile& file, std::string_view transport, Link& link) {
  for (const TransportCost& cost : file.transports) {
    if (cost.transport != transport || cost.link.us_per_byte <= 0) continue;
    link.bandwidth = 1e6 / cost.link.us_per_byte;
    link.efficiency = 1;
    link.latency_us = cost.link.latency_us;
    link.ramp_us = 0;
    return;
  }
}

Json link_json(const Link& link) {
  return {{"gb_s", link.bandwidth / kGiga}, {"efficiency", link.efficiency}, {"latency_us", link.latency_us},
          {"ramp_us", link.ramp_us},        {"sum_gain", link.sum_gain},     {"switched", link.is_switched}};
}

}  // namespace

Cluster cluster_from_json(std::string_view text, const std::string& name) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& error) {
    throw UsageError(fmt::format("cluster file {} is not JSON: {}", name, error.what()));
  }
  Reader reader(json, name, "");
  Cluster cluster;
  cluster.num_hosts = 0;
  std::string preset;
  reader.text("preset", preset);
  if (!preset.empty()) {
    const auto& all = cluster_presets();
    const auto found = std::find_if(all.begin(), all.end(), [&](const Cluster& known) { return known.name == preset; });
    if (found == all.end()) reader.fail(fmt::format("preset {} is not known", preset));
    cluster = *found;
  }
  cluster.name = name;
  reader.text("name", cluster.name);
  reader.count("devices_per_host", cluster.devices_per_host);
  reader.count("hosts", cluster.num_hosts);
  if (reader.object("transports") != nullptr) {  // measured by bench comm
    const ClusterFile measured = ClusterFile::from_json(text, name);
    measured_link(measured, "shared memory", cluster.inside);
    measured_link(measured, "tcp", cluster.between);
    if (preset.empty() && !json.contains("devices_per_host") && measured.cores > 0) {
      cluster.devices_per_host = measured.cores;
      if (!json.contains("hosts")) cluster.num_hosts = 1;
    }
  }
  for (const char* key : {"version", "host", "cores", "date"}) reader.object(key);
  const Json* device = reader.object("device");
  if (device != nullptr) {
    read_device(*device, name, cluster.device);
  } else if (preset.empty()) {
    throw UsageError(fmt::format("cluster file {} does not say what its devices can do: \"device\" is missing", name),
                     "give \"device\": {\"peak_tflops\": {…}, \"memory_gb\": …, \"memory_gb_s\": …}, or start from a "
                     "preset: \"preset\": \"laptop\"");
  }
  if (const Json* link = reader.object("inside")) read_link(*link, name, "inside", cluster.inside);
  if (const Json* link = reader.object("between")) read_link(*link, name, "between", cluster.between);
  if (const Json* stack = reader.object("stack")) read_stack(*stack, name, cluster.stack);
  reader.finish();
  cluster.check();
  return cluster;
}

std::string cluster_to_json(const Cluster& cluster) {
  const Device& d = cluster.device;
  Json peaks = Json::object();
  for (const NumberType type : {NumberType::kFloat32, NumberType::kFloat16, NumberType::kBfloat16, NumberType::kFp8}) {
    if (d.peak(type) > 0) peaks[std::string(name_of(type))] = d.peak(type) / kTera;
  }
  const Json json = {{"name", cluster.name},
                     {"devices_per_host", cluster.devices_per_host},
                     {"hosts", cluster.num_hosts},
                     {"device",
                      {{"name", d.name},
                       {"peak_tflops", peaks},
                       {"memory_gb", d.memory_bytes / kGiga},
                       {"memory_gb_s", d.memory_bandwidth / kGiga},
                       {"units", d.units},
                       {"product_efficiency", d.product_efficiency},
                       {"product_half_depth", d.product_half_depth},
                       {"memory_efficiency", d.memory_efficiency},
                       {"attention_efficiency", d.attention_efficiency},
                       {"kernel_us", d.kernel_us},
                       {"step_seconds", d.step_seconds}}},
                     {"inside", link_json(cluster.inside)},
                     {"between", link_json(cluster.between)},
                     {"stack",
                      {{"flash_attention", cluster.stack.flash_attention},
                       {"fused_half_only", cluster.stack.fused_half_only},
                       {"fused_update", cluster.stack.fused_update},
                       {"overlaps_gradients", cluster.stack.overlaps_gradients},
                       {"overlaps_tensor", cluster.stack.overlaps_tensor},
                       {"overlaps_messages", cluster.stack.overlaps_messages}}}};
  return json.dump(2) + "\n";
}

}  // namespace trireme
