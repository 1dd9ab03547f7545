// Enumerates the layouts that a search considers, with lower bounds on their time and memory.
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
  double least_seconds = 0;  ///< lower bound on its simulated step, except for effects that bounds ignore
  double least_bytes = 0;
};

/// Returns all candidates in ascending order of `least_seconds`. Given keys of the configuration stay as they are.
std::vector<Candidate> all_candidates(const Config& config, const Cluster& cluster, int64_t num_devices,
                                      const PlanOptions& options);

/// Returns the divisors of n, itself included, in ascending order.
std::vector<int64_t> divisors_of(int64_t n);

}  // namespace trireme
