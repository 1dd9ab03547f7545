// The layouts that a search looks at, and what each takes at least.
#pragma once

#include <map>
#include <tuple>

#include "trireme/plan/layout_rules.h"
#include "trireme/plan/search.h"

namespace trireme {

/// The methods of compression that the planner proposes.
inline constexpr Method kPlannedMethods[] = {Method::kBFloat16, Method::kPowerSgd, Method::kTopK};

struct Candidate {
  Job job;
  double least_seconds = 0;  ///< no simulation of it takes less, but for what bounds do not see
  double least_bytes = 0;
};

/// All of them, those with the lowest bounds first. What the configuration fixes is as it says.
std::vector<Candidate> all_candidates(const Config& config, const Cluster& cluster, int64_t num_devices,
                                      const PlanOptions& options);

/// n itself and what divides it, in order.
std::vector<int64_t> divisors_of(int64_t n);

}  // namespace trireme
