// How a batch is split over replicas: the arithmetic, and the messages when it does not work out.
#pragma once

#include "trireme/config/check.h"

namespace trireme {

/// The layout with so many replicas, at least 1, and its leaves. Throws UsageError that names the numbers nearest to
/// those asked for that would work.
Layout plan_batch(const Config& config, int64_t dp);

/// The numbers of parallel.shares; none where it is empty. Throws UsageError.
std::vector<int64_t> batch_parts_of(const Config& config);

}  // namespace trireme
