#include "trireme/plan/blame.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/config/check.h"
#include "trireme/config/pipeline.h"
#include "trireme/config/value.h"
#include "trireme/plan/candidates.h"
#include "trireme/plan/plan.h"

namespace trireme {
namespace {

/// Returns the given keys among those that the planner chooses, without the batch, which is always the user's.
std::vector<std::string> given_keys(const Config& config) {
  std::vector<std::string> given;
  for (const auto& [key, value] : keys_of({})) {
    const std::string name = key;
    if (name != "train.global_batch" && is_given(config, name)) given.push_back(name);
  }
  return given;
}

Config without(Config config, const std::string& name) {
  const Key& key = find_key(name, "the planner");
  set_value(config, key, get_value(Config(), key), "the planner");
  config.origins.set(name, "default");
  return config;
}

/// Drops given keys one after another while there is still no layout; the keys that cannot be dropped are at fault.
std::vector<std::string> keys_at_fault(const Config& config, const std::function<bool(const Config&)>& has_layout) {
  std::vector<std::string> at_fault;
  Config fewer = config;
  for (const std::string& key : given_keys(config)) {
    Config next = without(fewer, key);
    if (has_layout(next)) {
      at_fault.push_back(key);
    } else {
      fewer = std::move(next);
    }
  }
  return at_fault;
}

std::string reason_of_tensors(const Config& config) {
  try {
    check_tensor_parallel(config.model, config.parallel.tp);
    return "";
  } catch (const UsageError& error) {
    return cause_of(error);  // the cure is added below
  }
}

/// Returns why a key alone rules out every layout; empty if unknown.
std::string reason_of(std::string_view key, const Config& config, int64_t num_devices) {
  const ParallelConfig& p = config.parallel;
  const TrainConfig& train = config.train;
  const int64_t batch = train.global_batch;
  for (const auto& [name, degree] :
       {std::pair{"parallel.dp", p.dp}, {"parallel.tp", p.tp}, {"parallel.pp", p.pp}, {"parallel.cp", p.cp}}) {
    if (key != name) continue;
    if (degree < 1) return "";
    if (num_devices % degree != 0) return counted(num_devices, "device") + " cannot be split by it";
  }
  if (key == "parallel.tp") return reason_of_tensors(config);
  if (key == "parallel.dp" && batch % p.dp != 0) {
    return fmt::format("train.global_batch = {} cannot be split over so many replicas", batch);
  }
  if (const int layers = num_layers(config.model); key == "parallel.pp" && p.pp > layers) {
    return fmt::format("the model has {} to cut between", counted(layers, "layer"));
  }
  if (key == "train.micro_batch" && batch % train.micro_batch != 0) {
    return fmt::format("it does not divide train.global_batch = {}", batch);
  }
  return "";
}

}  // namespace

void refuse_keys(const Config& config, int64_t num_devices, const std::function<bool(const Config&)>& has_layout) {
  const std::vector<std::string> keys = keys_at_fault(config, has_layout);
  if (keys.empty()) {
    const int64_t batch = config.train.global_batch;
    throw UsageError(
        fmt::format("no layout cuts this training over {}{}", counted(num_devices, "device"),
                    batch >= num_devices
                        ? ""
                        : fmt::format(": a batch of {} has not a sample for each of so many replicas", batch)),
        "change train.global_batch, or give another number of devices");
  }
  std::vector<std::string> said;
  for (const std::string& key : keys) said.push_back(with_origin(config, key));
  if (keys.size() > 1) {
    const std::string last = said.back();
    said.pop_back();
    throw UsageError(fmt::format("{} and {} together leave no layout for {}", join(said, ", "), last,
                                 counted(num_devices, "device")),
                     "change one of them, or leave it to the planner");
  }
  const std::string reason = reason_of(keys[0], config, num_devices);
  throw wrong_key(keys[0],
                  fmt::format("{} leaves no layout for {}{}", said[0], counted(num_devices, "device"),
                              reason.empty() ? "" : ": " + reason),
                  fmt::format("give another {0}, or leave {0} to the planner", keys[0]));
}

}  // namespace trireme
