// `trireme bench comm --server`: parameter servers beside a ring, and why they are a bottleneck.
#pragma once

#include "trireme/cli/bench_comm_options.h"
#include "trireme/elastic/process.h"

namespace trireme::cli {

/// Measures 1, 2 and 4 servers for each number of workers and each size, and prints a table or one object.
void run_bench_comm_server(const BenchCommOptions& options, Guardian& guardian, bool colour);

}  // namespace trireme::cli
