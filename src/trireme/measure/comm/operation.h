// The collectives that `trireme bench comm` measures, and what the formulas say about each.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "trireme/comm/algorithms/algorithm.h"
#include "trireme/mesh/cluster_file.h"

namespace trireme::measure {

enum class Operation { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kAllToAll };
inline constexpr std::array<std::string_view, 5> kOperationNames = {"all-reduce", "reduce-scatter", "all-gather",
                                                                    "broadcast", "all-to-all"};

std::string_view name_of(Operation operation);
/// Blind to case and underscores. Throws UsageError with the nearest name.
Operation operation_named(std::string_view name);
/// Time to bandwidth of the busiest link, as nccl-tests counts it: 2(p−1)/p for all-reduce.
double bus_factor(Operation operation, int ranks);

/// Whether ranks over this transport, as World names it, reach each other's memory.
bool shares_memory(const std::string& transport);
/// Microseconds for p ranks and n bytes of the whole vector. `algorithm` is that of an all-reduce. 0 for one rank.
double predict_operation_us(Operation operation, Algorithm algorithm, int ranks, uint64_t bytes,
                            const TransportCost& cost);
/// How an operation other than all-reduce is done: "in-place", "direct", "tree" or "scatter-gather".
std::string method_of(Operation operation, int ranks, uint64_t bytes, const std::string& transport);

}  // namespace trireme::measure
