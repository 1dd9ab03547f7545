#include "trireme/program/times.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/error.h"

namespace trireme {

StageTimes StageTimes::equal(int num_stages, double forward, double backward, double weight, double comm) {
  const auto all = [num_stages](double value) { return std::vector<double>(static_cast<size_t>(num_stages), value); };
  return {all(forward), all(backward), all(weight), all(comm)};
}

namespace {

std::vector<double> spread(const char* what, const std::vector<double>& values, const std::vector<int>& rank_of_stage,
                           bool divided) {
  for (const double value : values) {
    if (!std::isfinite(value) || value < 0) {
      throw UsageError(fmt::format("{} times: {} ms cannot be", what, value), "times are 0 or more milliseconds");
    }
  }
  const size_t num_stages = rank_of_stage.size();
  const size_t num_ranks = static_cast<size_t>(*std::max_element(rank_of_stage.begin(), rank_of_stage.end())) + 1;
  if (values.size() == num_stages && num_stages != num_ranks) return values;
  if (values.size() != 1 && values.size() != num_ranks) {
    throw UsageError(fmt::format("{} times: {} values", what, values.size()),
                     num_stages == num_ranks
                         ? fmt::format("give 1 or {} (one a stage)", num_ranks)
                         : fmt::format("give 1, {} (one a rank) or {} (one a stage)", num_ranks, num_stages));
  }
  std::vector<double> all;
  for (const int rank : rank_of_stage) {
    const auto num_own = divided ? std::count(rank_of_stage.begin(), rank_of_stage.end(), rank) : 1;
    all.push_back(values[values.size() == 1 ? 0 : static_cast<size_t>(rank)] / static_cast<double>(num_own));
  }
  return all;
}

}  // namespace

StageTimes spread_over_stages(const StageTimes& given, const std::vector<int>& rank_of_stage) {
  return {spread("forward", given.forward, rank_of_stage, true),
          spread("backward", given.backward, rank_of_stage, true), spread("weight", given.weight, rank_of_stage, true),
          spread("comm", given.comm, rank_of_stage, false)};
}

}  // namespace trireme
