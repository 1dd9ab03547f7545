// Cuts a sequence of layers into the stages of a pipeline, so that the slowest stage is as fast as it can be.
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

/// Stages in order; together all layers, each stage at least one.
using Partition = std::vector<LayerRange>;

struct PartitionProblem {
  int num_stages = 1;
  std::vector<double> costs;        ///< of each layer: measured times, parameters, or what the user thinks of it
  std::vector<double> speeds = {};  ///< of each stage, where some have more devices; empty: alike
  // Memory, where it is limited: a stage holds the bytes of its layers, and their activations of several micro-batches.
  std::vector<uint64_t> bytes = {};             ///< of each layer: weights, gradients, optimizer; empty: 0
  std::vector<uint64_t> activation_bytes = {};  ///< of each layer and micro-batch; empty: 0
  std::vector<double> in_flight = {};           ///< micro-batches that each stage holds (PeakMemory); empty: 1
  uint64_t limit_bytes = 0;                     ///< of each stage; 0: none
};

/// The partition whose slowest stage is fastest, exactly, by dynamic programming: O(layers² · stages). Among those, the
/// one whose stages are most alike (least sum of squares), and of equals the one with its first cuts earliest. Throws
/// UsageError for more stages than layers, lists of other lengths, costs that are negative or not finite, and a limit
/// that no partition keeps (with the least limit that one keeps).
Partition partition(const PartitionProblem& problem);

/// The same for ranks with several stages: of partitions with as fast a slowest stage, one in which the busiest rank
/// has less, found by moving single cuts.
Partition partition_over_ranks(const PartitionProblem& problem, const std::vector<int>& rank_of_stage);

/// "4,4,4" (layers of each stage) or "0-3,4-7,8-11" (first and last layer of each); a plus stands for a comma, where
/// commas separate other things. Throws UsageError that names the part that is wrong.
Partition partition_from_text(std::string_view text, int num_layers);
/// "0-3,4-7,8-11"
std::string partition_to_text(const Partition& partition);

}  // namespace trireme
