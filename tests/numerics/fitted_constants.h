// The constants of a preset that published steps choose, by name; and those that they choose when one paper is left
// out, whose steps are then a test.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/simulate/cluster.h"

namespace trireme::published {

struct Constant {
  const char* name;
  double least, most;
  double& (*of)(Cluster&);
};

inline const std::vector<Constant>& all_constants() {
  static const std::vector<Constant> all = {
      {"product_efficiency", 0.3, 1, [](Cluster& c) -> double& { return c.device.product_efficiency; }},
      {"product_half_depth", 20, 300, [](Cluster& c) -> double& { return c.device.product_half_depth; }},
      {"memory_efficiency", 0.1, 0.85, [](Cluster& c) -> double& { return c.device.memory_efficiency; }},
      {"attention_efficiency", 0.1, 0.8, [](Cluster& c) -> double& { return c.device.attention_efficiency; }},
      {"kernel_us", 3, 25, [](Cluster& c) -> double& { return c.device.kernel_us; }},
      {"step_seconds", 0.0001, 0.02, [](Cluster& c) -> double& { return c.device.step_seconds; }},
      {"gated_traffic", 1, 8, [](Cluster& c) -> double& { return c.stack.gated_traffic; }},
      {"inside ramp_us", 5, 300, [](Cluster& c) -> double& { return c.inside.ramp_us; }},
      {"between efficiency", 0.2, 1, [](Cluster& c) -> double& { return c.between.efficiency; }},
      {"between latency_us", 5, 40, [](Cluster& c) -> double& { return c.between.latency_us; }}};
  return all;
}

/// What NCCL's own measurements have set is not moved, nor what no row tells of.
inline std::vector<Constant> constants_of(const Cluster& cluster) {
  std::vector<Constant> list = all_constants();
  const bool is_hopper = cluster.inside.sum_gain > 1;
  std::erase_if(list, [&](const Constant& constant) {
    const std::string_view name = constant.name;
    return is_hopper ? name == "inside ramp_us" || name == "between latency_us" : name == "gated_traffic";
  });
  return list;
}

/// A source without what follows its first comma.
inline std::string paper_of(const std::string& source) { return source.substr(0, source.find(',')); }

struct LeftOutFit {
  const char* cluster;
  const char* paper;  ///< whose steps have chosen nothing
  std::vector<std::pair<const char*, double>> constants;

  Cluster applied() const {
    Cluster fitted = find_cluster(cluster);
    for (const auto& [name, value] : constants) {
      const auto constant =
          std::find_if(all_constants().begin(), all_constants().end(),
                       [name = std::string_view(name)](const Constant& each) { return each.name == name; });
      if (constant == all_constants().end()) throw Error("a fit has a constant that is not known");
      constant->of(fitted) = value;
    }
    return fitted;
  }
};

/// What `bench_fit_presets CLUSTER --leave-out` prints.
inline const std::vector<LeftOutFit>& left_out_fits() {
  static const std::vector<LeftOutFit> all = {
#include "left_out_fits.inc"
  };
  return all;
}

}  // namespace trireme::published
