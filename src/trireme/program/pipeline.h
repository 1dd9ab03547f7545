// A pipeline as a program: a schedule's orders of computation, with messages, sums over the tree and over replicas,
// recomputation, versions of the weights and updates. It composes with data parallelism: replicas of the pipeline.
#pragma once

#include "trireme/program/schedules/schedule.h"

namespace trireme {

struct PipelineShape {
  Schedule schedule = {};            ///< its micro-batches are those of one replica
  int num_replicas = 1;              ///< dp; where stages differ, the number of lanes ([Note: Lanes])
  int num_leaves = 0;                ///< of an update, over all replicas ([Note: Leaves]); 0: one a micro-batch
  std::vector<int> groups = {};      ///< of gradients, one number a stage or one for all; empty: 1
  std::vector<bool> recompute = {};  ///< one a stage or one for all; empty: none
  std::vector<int> replicas = {};    ///< of each rank of the pipeline, dividing num_replicas; empty: num_replicas
  int receive_ahead = 2;             ///< messages that a rank is ready to receive on a channel before it has used them

  int replicas_of(int rank) const { return replicas.empty() ? num_replicas : replicas[static_cast<size_t>(rank)]; }
  /// Ranks of the pipeline in all replicas: as many as there are programs.
  int num_programs() const;
  /// Of an update: what check_programs() wants to know.
  int leaves() const { return num_leaves == 0 ? schedule.micro_batches_in_update() * num_replicas : num_leaves; }
  bool operator==(const PipelineShape&) const = default;
};

/// What the rank at this place of the mesh does. Micro-batches are numbered as without a pipeline: update by update,
/// and in each replica by replica; so the sums are those of lower_data_parallel(), bit for bit, for every schedule with
/// one update. Throws UsageError for a shape that does not divide and for messages that nobody uses or sends, and Error
/// for weight gradients of a stage that do not come in the order of micro-batches.
Program lower_pipeline(const PipelineShape& shape, int pipeline_rank, int replica = 0);

/// Of one replica, all ranks; not where ranks differ in their replicas.
std::vector<Program> lower_pipeline_ranks(const PipelineShape& shape, int replica = 0);
/// Of all, what check_programs() takes: replica by replica, and where ranks differ in these rank by rank.
std::vector<Program> lower_pipeline_all(const PipelineShape& shape);

}  // namespace trireme
