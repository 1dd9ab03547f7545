// Partitions a sequence of layers into pipeline stages so that the slowest stage is as fast as possible.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// Layers first … last-1.
struct LayerRange {
  int first = 0;
  int last = 0;
  bool operator==(const LayerRange&) const = default;
};

/// Stages in order: together they cover all layers, and each has at least one.
using Partition = std::vector<LayerRange>;

struct PartitionProblem {
  int num_stages = 1;
  std::vector<double> costs;        ///< per layer, in any unit: measured times, numbers of parameters, estimates
  std::vector<double> speeds = {};  ///< per stage, relative, if some have more devices; empty: all equal
  // Memory limit: a stage holds the bytes of its layers, and their activations for several micro-batches.
  std::vector<uint64_t> bytes = {};             ///< per layer: weights, gradients, optimizer state; empty: 0
  std::vector<uint64_t> activation_bytes = {};  ///< per layer, for one micro-batch; empty: 0
  std::vector<double> in_flight = {};           ///< per stage: micro-batches held (PeakMemory); empty: 1
  uint64_t limit_bytes = 0;                     ///< per stage; 0: no limit
};

/// The exact optimum by dynamic programming, O(layers² · stages): the least cost of the slowest stage; among those, the
/// least sum of squared costs; among those, the earliest first cuts. Throws UsageError for more stages than layers,
/// lists of the wrong length, costs that are negative or not finite, and a memory limit that no partition keeps (naming
/// the smallest limit that works).
Partition partition(const PartitionProblem& problem);

/// The same for ranks with several stages: keeps the cost of the slowest stage and balances the ranks (least sum of
/// their squared costs) by moving single cuts, a local optimum. With a memory limit or speeds, the same as partition().
Partition partition_over_ranks(const PartitionProblem& problem, const std::vector<int>& rank_of_stage);

/// Parses "4,4,4" (number of layers of each stage) or "0-3,4-7,8-11" (first and last layer of each). "+" may replace
/// ",", for lists in which commas separate something else. Throws UsageError that names the wrong part.
Partition partition_from_text(std::string_view text, int num_layers);
/// "0-3,4-7,8-11"
std::string partition_to_text(const Partition& partition);

}  // namespace trireme
