// `parallel.plan` in a training: what a plan changes in a config, as words of a command line.
#pragma once

#include <string>
#include <vector>

#include "trireme/config/config.h"

namespace trireme::cli {

/// "auto" asks the planner, for the cluster that TRIREME_CLUSTER names (a preset or a file; by default a laptop's
/// cores, or H100s for train.device = "cuda"); everything else is the path of a plan. `told` is what to say about it.
/// One of the words empties parallel.plan. Throws UsageError for a plan of another model or number of workers, and for
/// one that no key says; Error where nothing fits.
std::vector<std::string> plan_words(const Config& config, int num_workers, std::string& told);

}  // namespace trireme::cli
