// How long a benchmark will take, roughly: told before it starts.
#pragma once

#include <algorithm>
#include <string>
#include <thread>

#include "trireme/measure/comm/table.h"
#include "trireme/measure/train/cases.h"

namespace trireme::measure {

inline int all_cores() { return static_cast<int>(std::max(1u, std::thread::hardware_concurrency())); }

/// Seconds of the table of `trireme bench comm` on this machine, or on `cores` cores.
double estimate_comm_seconds(const CommOptions& options, int cores = all_cores());

/// Seconds of these trainings; 0 where nobody can say (images, GPUs). `num_peers`: trainings by PyTorch.
double estimate_train_seconds(const TrainPlan& plan, const TrainOptions& options, size_t num_peers,
                              int cores = all_cores());

/// "about 20 s", "about 3 min": as rough as an estimate.
std::string rough_duration(double seconds);

}  // namespace trireme::measure
