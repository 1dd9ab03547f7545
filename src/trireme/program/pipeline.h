// Lowers a pipeline schedule to programs: adds messages, gradient sums along the tree and over replicas, recomputation,
// weight versions and updates to each rank's order of computations. Composes with data parallelism (replicas).
#pragma once

#include "trireme/program/schedules/schedule.h"

namespace trireme {

struct PipelineShape {
  Schedule schedule = {};            ///< micro-batches are those of one replica
  int num_replicas = 1;              ///< dp; if stages differ, the number of lanes ([Note: Lanes])
  int num_leaves = 0;                ///< total of an update, over all replicas ([Note: Leaves]); 0: one per micro-batch
  std::vector<int> groups = {};      ///< number of gradient groups, per stage or one for all; empty: 1
  std::vector<bool> recompute = {};  ///< per stage or one for all; empty: no recomputation
  std::vector<int> replicas = {};    ///< per pipeline rank, divisors of num_replicas; empty: num_replicas each
  int receive_ahead = 2;             ///< receives that a rank posts ahead of their use, per channel

  int replicas_of(int rank) const { return replicas.empty() ? num_replicas : replicas[static_cast<size_t>(rank)]; }
  /// Number of ranks in all replicas, so of programs.
  int num_programs() const;
  /// Leaves of an update, as check_programs() takes them.
  int leaves() const { return num_leaves == 0 ? schedule.micro_batches_in_update() * num_replicas : num_leaves; }
  bool operator==(const PipelineShape&) const = default;
};

/// The program of one rank. Micro-batches are numbered as without a pipeline: update by update, and within an update
/// replica by replica. So for every schedule with one update, sums are bit-equal to those of lower_data_parallel().
/// Throws UsageError for sizes that do not divide each other and for messages that are never used or never sent; Error
/// if a stage's weight gradients are not in the order of micro-batches.
Program lower_pipeline(const PipelineShape& shape, int pipeline_rank, int replica = 0);

/// The programs of one replica's ranks; only if all ranks have the same number of replicas.
std::vector<Program> lower_pipeline_ranks(const PipelineShape& shape, int replica = 0);
/// The programs of all ranks, in the order of check_programs(): replica by replica; rank by rank if `replicas` is set.
std::vector<Program> lower_pipeline_all(const PipelineShape& shape);

}  // namespace trireme
