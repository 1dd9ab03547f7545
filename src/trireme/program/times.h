// How long the instructions of a pipeline take: what a timeline, and a schedule that fits itself to it, are made from.
#pragma once

#include <vector>

namespace trireme {

/// In milliseconds, one value a stage.
struct StageTimes {
  std::vector<double> forward;
  std::vector<double> backward;  ///< for inputs alone
  std::vector<double> weight;    ///< for weights; a whole backward pass is both
  std::vector<double> comm;      ///< of a message that the stage sends

  static StageTimes equal(int num_stages, double forward, double backward, double weight, double comm);
  bool operator==(const StageTimes&) const = default;
};

/// Times as people give them, one for all, one a rank or one a stage, become one a stage: the stages of a rank share
/// its computing time equally. Throws UsageError for other counts, and for times that are negative or not finite.
StageTimes spread_over_stages(const StageTimes& given, const std::vector<int>& rank_of_stage);

}  // namespace trireme
