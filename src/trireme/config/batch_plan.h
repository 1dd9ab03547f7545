// How a batch is split over replicas: the arithmetic, and the messages when it does not work out.
#pragma once

#include "trireme/config/check.h"

namespace trireme {

/// The largest divisor of the number of micro-batches that is at most 8. Of dp it knows nothing, so that another dp
/// gives the same bits.
int64_t derived_leaves(int64_t num_micro_batches);

/// `dp` is at least 1. Throws UsageError that names the numbers nearest to those asked for that would work.
BatchPlan plan_batch(const Config& config, int64_t dp);

}  // namespace trireme
