// What `trireme bench comm` is asked for, checked: the rest of the command believes it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/algorithms/algorithm.h"

namespace trireme::cli {

enum class Operation { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kAllToAll };

std::string_view name_of(Operation operation);
/// Throws UsageError with the nearest name.
Operation operation_named(std::string_view name);
/// Time to bandwidth of the busiest link, as nccl-tests counts it: 2(p−1)/p for all-reduce.
double bus_factor(Operation operation, int ranks);

/// As typed.
struct BenchCommFlags {
  std::string ranks, sizes, operations, transport = "auto", algorithm = "auto", buffers = "both", compare;
  std::string cluster_file, seconds_per_point, device = "cpu";
  bool explain = false, write_cluster = false, json = false, unbound = false;
};

struct BenchCommOptions {
  std::vector<int> ranks;
  std::vector<uint64_t> sizes;  ///< bytes of the whole vector, multiples of 4
  std::vector<Operation> operations;
  std::string transport;              ///< "auto", "threads", "tcp" or "mpi"
  std::vector<Algorithm> algorithms;  ///< of the all-reduce
  std::vector<bool> buffers;          ///< registered or not, in the order of measurement
  bool compare_mpi = false, compare_gloo = false;
  bool explain = false, json = false;
  bool on_gpu = false;  ///< operands in GPU memory
  bool bind = true;     ///< ours and MPI's ranks to cores, where there are enough; the scheduler places them otherwise
  std::optional<std::filesystem::path> write_cluster;
  std::optional<double> seconds_per_point;  ///< of each contestant; none: a fixed number of rounds
};

/// Throws UsageError that names the flag, what is wrong with it and what was probably meant.
BenchCommOptions check_flags(const BenchCommFlags& flags);

}  // namespace trireme::cli
