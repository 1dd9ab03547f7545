// Plain data parallelism as a program: the simplest one.
#pragma once

#include "trireme/program/instruction.h"

namespace trireme {

struct DataParallelShape {
  int num_micro_batches = 1;  ///< total of the step, over all ranks
  int num_leaves = 1;         ///< divisor of num_micro_batches; multiple of num_ranks unless batch_parts is set
  int num_ranks = 1;
  int num_groups = 1;                 ///< gradient groups, in the order in which the backward pass fills them
  std::vector<int> batch_parts = {};  ///< leaves of each rank; empty: equally many
  int lanes = 1;                      ///< lanes per rank, each with equally many leaves; only for sums_of()
};

/// Which leaves a rank sums in which slots, and how the ranks' partial sums are added up.
struct DataParallelSums {
  LeafSchedule leaves;
  CrossRankSum across;
};
/// Throws UsageError for sizes that do not divide each other, and for a rank out of range.
DataParallelSums sums_of(const DataParallelShape& shape, int rank);

/// The program of `rank`. Throws as sums_of().
Program lower_data_parallel(const DataParallelShape& shape, int rank);
/// The programs of all ranks.
std::vector<Program> lower_data_parallel_all(const DataParallelShape& shape);

}  // namespace trireme
