// `trireme bench comm --device cuda`: collectives on GPU memory, between processes that share a card and between cards.
#pragma once

#include "trireme/cli/bench_comm_options.h"

namespace trireme::cli {

/// Measures each number of ranks with each backend that works here, prints the tables, and keeps the links in the
/// cluster file where that is asked for. What cannot be measured becomes a note. Throws Error where nothing can.
void run_bench_comm_gpu(const BenchCommOptions& options, bool colour);

}  // namespace trireme::cli
