#include "trireme/comm/algorithms/cost_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>

namespace trireme {
namespace {

/// In words, in the order of the enumeration.
struct CostWords {
  std::string_view formula, complexity;
};
constexpr CostWords kCosts[] = {
    {"", ""},
    {"2(p−1)(α + nβ) + (p−1)nγ", "O(N) time, O(N) at the root"},
    {"2(α + (p−1)nβ) + (p−1)nγ", "O(1) rounds, O(N) at the server"},
    {"2(p−1)α + 2(p−1)/p·nβ + (p−1)/p·nγ", "O(N) time, O(1) bandwidth"},
    {"α + (p−1)nβ + (p−1)nγ", "O(1) time, O(N²) in all"},
    {"2 lg p·α + 2(p−1)/p·nβ + (p−1)/p·nγ", "O(log N) time, O(1) bandwidth"},
    {"2 lg p·α + 2(p−1)/p·nβ + (p−1)/p·nγ", "O(log N) time, O(1) bandwidth"},
    {"2⌈lg p⌉α + 2nβ + nγ", "O(log N) time, O(1) bandwidth"},
    {"⌈lg p⌉(α + nβ + nγ)", "O(log N) time, O(log N) bandwidth"},
    {"2α + 2(p−1)/p·nβ + (p−1)/p·nγ", "O(1) rounds, O(1) bandwidth"},
    {"in place inside a host + ordered between hosts", "O(1) rounds, O(1) bandwidth"},
    {"2 meetings + n/p·((p−1)γ + p·copy)", "2 meetings, nothing sent"},
};
static_assert(std::size(kCosts) == static_cast<size_t>(Algorithm::kInPlace) + 1);

// Vectors that go one after another through the busiest link: lg p for powers of two. Otherwise the smaller right part
// of a block serves all of the left one: see algorithms/butterfly.cpp.
double butterfly_vectors(unsigned p) {
  if (p <= 1) return 0;
  const unsigned left = std::bit_floor(p - 1), right = p - left;
  return std::max(butterfly_vectors(left), butterfly_vectors(right)) + (left + right - 1) / right;
}

}  // namespace

double predict_us(Algorithm algorithm, int p, size_t num_bytes, const TransportCost& cost,
                  const TransportCost* local_cost, int local_ranks) {
  if (p <= 1) return 0;
  const double n = static_cast<double>(num_bytes), ranks = p;
  const double a = cost.link.latency_us, b = cost.link.us_per_byte, g = cost.reduce_us_per_byte;
  const double fraction = (ranks - 1) / ranks;
  const bool power_of_two = std::has_single_bit(static_cast<unsigned>(p));
  const double floor_lg = std::floor(std::log2(ranks)), ceil_lg = std::ceil(std::log2(ranks));
  switch (algorithm) {
    case Algorithm::kAuto:
      return 0;
    case Algorithm::kSequential:
      return 2 * (ranks - 1) * (a + n * b) + (ranks - 1) * n * g;
    case Algorithm::kServer:
      return 2 * (a + (ranks - 1) * n * b) + (ranks - 1) * n * g;
    case Algorithm::kRing:
      return 2 * (ranks - 1) * a + 2 * fraction * n * b + fraction * n * g;
    case Algorithm::kParallel:
      return a + (ranks - 1) * n * b + (ranks - 1) * n * g;
    case Algorithm::kRecursiveHalving:
    case Algorithm::kFarthestFirst:
      return power_of_two ? 2 * floor_lg * a + 2 * fraction * n * b + fraction * n * g
                          : (2 * floor_lg + 2) * a + (2 * fraction + 2) * n * b + (1 + fraction) * n * g;
    case Algorithm::kTree:
      return 2 * ceil_lg * a + 2 * n * b + n * g;
    case Algorithm::kButterfly:
      return ceil_lg * (a + n * g) + butterfly_vectors(static_cast<unsigned>(p)) * n * b;
    case Algorithm::kOrdered:
      return 2 * a + 2 * fraction * n * b + fraction * n * g;
    case Algorithm::kTwoLevel: {
      if (local_cost == nullptr) local_cost = &cost;
      const int hosts = (p + local_ranks - 1) / local_ranks;
      return predict_us(Algorithm::kInPlace, local_ranks, num_bytes, *local_cost) +
             predict_us(Algorithm::kOrdered, hosts, num_bytes / static_cast<size_t>(local_ranks), cost);
    }
    case Algorithm::kInPlace:
      return 2 * cost.barrier_us + n / ranks * ((ranks - 1) * g + ranks * cost.copy_us_per_byte);
  }
  return 0;
}

std::string_view formula_of(Algorithm algorithm) { return kCosts[static_cast<size_t>(algorithm)].formula; }

std::string_view complexity_of(Algorithm algorithm) { return kCosts[static_cast<size_t>(algorithm)].complexity; }

}  // namespace trireme
