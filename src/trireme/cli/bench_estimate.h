// How long a benchmark will take, roughly: said before it starts.
#pragma once

#include <string>

#include "trireme/cli/bench_comm_options.h"
#include "trireme/cli/bench_train_plan.h"

namespace trireme::cli {

/// Of the table of `trireme bench comm`, on `cores` cores.
double estimate_bench_comm_seconds(const BenchCommOptions& options, int cores);

/// Of these trainings on `cores` cores; 0 where nobody can say (images, GPUs). `num_of_peers`: trainings by PyTorch.
double estimate_bench_train_seconds(const BenchTrainPlan& plan, const BenchTrainFlags& flags, size_t num_of_peers,
                                    int cores);

/// "about 20 s", "about 3 min": as rough as the estimate.
std::string rough_duration(double seconds);

}  // namespace trireme::cli
