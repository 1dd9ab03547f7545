// Durations of a pipeline's instructions: input of timelines, and of schedules that adapt to them.
#pragma once

#include <vector>

namespace trireme {

/// Times in milliseconds, one value per stage.
struct StageTimes {
  std::vector<double> forward;
  std::vector<double> backward;  ///< gradients of inputs
  std::vector<double> weight;    ///< gradients of weights; a whole backward pass takes backward + weight
  std::vector<double> comm;      ///< message that the stage sends

  static StageTimes equal(int num_stages, double forward, double backward, double weight, double comm);
  bool operator==(const StageTimes&) const = default;
};

/// Expands times given as one for all, one per rank or one per stage to one per stage: a rank's computing time is
/// divided equally among its stages. Throws UsageError for other counts, and for times that are negative or not finite.
StageTimes spread_over_stages(const StageTimes& given, const std::vector<int>& rank_of_stage);

}  // namespace trireme
