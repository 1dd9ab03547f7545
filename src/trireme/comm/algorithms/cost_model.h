// What each all-reduce algorithm should cost: the formulas of the literature, in one place.
#pragma once

#include <cstddef>
#include <string_view>

#include "trireme/comm/algorithms/algorithm.h"
#include "trireme/mesh/cluster_file.h"

namespace trireme {

/// Microseconds for p ranks and n bytes: α a message, β a byte, γ a byte reduced, from `cost`. kTwoLevel counts as
/// kInPlace inside hosts of `local_ranks` and kOrdered between them.
double predict_us(Algorithm algorithm, int p, size_t num_bytes, const TransportCost& cost,
                  const TransportCost* local_cost = nullptr, int local_ranks = 1);

/// The formula as people write it: "2(p−1)α + 2(p−1)/p·nβ + (p−1)/p·nγ".
std::string_view formula_of(Algorithm algorithm);
/// Growth with the number of ranks: "O(N) time, O(1) bandwidth".
std::string_view complexity_of(Algorithm algorithm);

}  // namespace trireme
