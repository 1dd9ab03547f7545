// Whether a configuration can be run on a number of workers, and how its batch is split over them.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/config/config.h"

namespace trireme {

/// global_batch = micro_batch x num_micro_batches; num_micro_batches = accumulation x dp; dp | leaves |
/// num_micro_batches.
///
/// Leaves are the runs of micro-batches that are summed one after another; their sums meet in a binary tree. They, not
/// dp, fix the order of every sum, so the same leaves give the same bits for any dp that divides them, and for shares
/// of any size: parallel.shares gives some replicas more leaves than others.
struct BatchPlan {
  int64_t global_batch = 0;
  int64_t micro_batch = 0;
  int64_t num_micro_batches = 0;  ///< of a step, over all replicas
  int64_t leaves = 0;
  int64_t dp = 0;                    ///< replicas; lanes where stages differ ([Note: Lanes])
  int64_t accumulation = 0;          ///< micro-batches of a step on one replica; with shares, of the one that has most
  std::vector<int64_t> shares = {};  ///< leaves of each replica; empty: equal
  bool operator==(const BatchPlan&) const = default;
};

/// That hold one replica of the model: tp x pp x cp. Experts are spread over replicas, so ep adds none. Throws
/// UsageError for a degree that is not a number of workers. Not where parallel.stages says the degrees of each stage.
int64_t workers_of_replica(const Config& config);

/// All that check() does but whether this version can do it: for planner and simulator.
BatchPlan check_sizes(const Config& config, int64_t world_size);

/// Keys that contradict each other, degrees that do not fit the workers, a batch that cannot be split, what this
/// version cannot do: each throws UsageError that names keys, values, origins and a cure.
BatchPlan check(const Config& config, int64_t world_size);

/// Keys of the model that contradict each other: part of check_sizes(). Throws UsageError.
void check_model(const Config& config);

/// Which configurations parameter servers cannot train: part of check_sizes(). Throws UsageError; nothing where there
/// are no servers.
void check_servers(const Config& config);

/// Whether a model can be cut over `ranks` by tensor parallelism. Throws UsageError that names the model's key, and the
/// one that the ranks come from.
void check_tensor_parallel(const ModelConfig& model, int64_t ranks, std::string_view key = "parallel.tp");

/// With parallel.dp and train.leaves as the plan has them, "derived" where nobody had set them. For --show-config; a
/// file that a run keeps leaves parallel.dp open, so that it runs on any number of workers.
Config with_plan(Config config, const BatchPlan& plan);

}  // namespace trireme
