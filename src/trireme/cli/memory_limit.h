// --memory-limit of `trireme plan`: what a plan may take of a device.
#pragma once

#include <string>
#include <vector>

#include "trireme/simulate/cluster.h"

namespace trireme::cli {

/// Bytes; 0 where `text` is empty: all that a device has. Throws UsageError for more than that, and for nothing.
double memory_limit(const std::string& text, const std::vector<Cluster>& kinds);

}  // namespace trireme::cli
