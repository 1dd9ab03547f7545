// Plain data parallelism as a program: the first and simplest one.
#pragma once

#include "trireme/program/instruction.h"

namespace trireme {

struct DataParallelShape {
  int num_micro_batches = 1;  ///< of the whole step
  int num_leaves = 1;         ///< divides num_micro_batches; a multiple of num_ranks, unless there are batch parts
  int num_ranks = 1;
  int num_groups = 1;                 ///< of gradients, in the order in which the backward pass fills them
  std::vector<int> batch_parts = {};  ///< leaves of each rank; empty: equal
  int lanes = 1;                      ///< of a rank, which has equal leaves in each; for sums_of() alone
};

/// Which leaves a rank sums, in which slots, and how the ranks' sums become one.
struct DataParallelSums {
  LeafSchedule leaves;
  CrossRankSum across;
};
/// Throws UsageError for a shape that does not divide.
DataParallelSums sums_of(const DataParallelShape& shape, int rank);

/// What `rank` does. Throws UsageError for a shape that does not divide.
Program lower_data_parallel(const DataParallelShape& shape, int rank);
/// All ranks' programs.
std::vector<Program> lower_data_parallel_all(const DataParallelShape& shape);

}  // namespace trireme
