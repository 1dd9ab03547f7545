// Splits a batch over replicas: the arithmetic, and the messages if it does not work out.
#pragma once

#include "trireme/config/check.h"

namespace trireme {

/// The layout with `dp` replicas (1 or more; lanes with parallel.stages) and its leaves. Throws UsageError that
/// proposes the nearest numbers that work.
Layout plan_batch(const Config& config, int64_t dp);

/// The numbers of parallel.shares; empty if it is. Throws UsageError.
std::vector<int64_t> batch_parts_of(const Config& config);

}  // namespace trireme
