// What the formulas say about every operation that `trireme bench comm` measures; those of all-reduce are the
// library's.
#pragma once

#include <string>

#include "trireme/cli/bench_comm_options.h"
#include "trireme/mesh/cluster_file.h"

namespace trireme::cli {

/// Whether ranks over this transport, as World names it, reach each other's memory.
bool shares_memory(const std::string& transport);

/// Microseconds for p ranks and n bytes of the whole vector. `algorithm` is that of an all-reduce. 0 for one rank.
double predict_operation_us(Operation operation, Algorithm algorithm, int ranks, uint64_t bytes,
                            const TransportCost& cost);

/// How an operation other than all-reduce is done: "in-place", "direct", "tree" or "scatter-gather".
std::string method_of(Operation operation, int ranks, uint64_t bytes, const std::string& transport);

}  // namespace trireme::cli
