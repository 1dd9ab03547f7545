// What `trireme bench train` shows of mixed precision: speed, and what becomes of memory and of what travels.
#pragma once

#include <string>

#include "trireme/cli/bench_train_measure.h"

namespace trireme::cli {

/// Of a run whose plan has precisions, the first of them float32.
std::string bench_train_precision_tables(const BenchTrainRun& run, bool colour);

}  // namespace trireme::cli
