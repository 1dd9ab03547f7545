// `trireme bench comm --write-cluster`: the constants of the cost formulas, measured on this machine and fitted.
//
//   constant                  from
//   α latency, β per byte     steps of a ring (all send right and receive left at once) of several sizes: least squares
//   γ per byte reduced, copy  adding and copying vectors, in the caches and beyond, on all ranks at once
//   barrier                   the median of many
//
// One γ has to do for all sizes, in the caches and beyond: the geometric mean of both sides.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "trireme/measure/comm/table.h"
#include "trireme/measure/statistics.h"

namespace trireme::measure {

/// The sizes of the all-reduces that a fit is compared with.
inline constexpr uint64_t kCheckedSizes[] = {4 << 10, 64 << 10, 1 << 20, 16 << 20};

/// One transport with one number of ranks.
struct FittedTransport {
  TransportCost cost;
  double link_error = 0;                     ///< median, of the line through the messages
  Timings all_reduce;                        ///< measured, with the algorithm that the tuner takes
  std::vector<double> all_reduce_predicted;  ///< µs, for the same sizes
  double all_reduce_error = 0;               ///< median
};

struct Fit {
  std::vector<FittedTransport> transports;
  std::vector<std::string> left_out;  ///< "mpi with 2 ranks: why"
  std::filesystem::path path;
};

/// Measures every transport that can be started here with each number of ranks, and merges the constants into the file.
/// Progress goes to stderr. Throws Error where nothing can be measured, Interrupted.
Fit fit_cluster(const CommOptions& options, const std::filesystem::path& path, Guardian& guardian);

/// Asks for everything that the fit needs and fits it. `ask` gives the median time of a command of worker.h, in µs, and
/// sets `algorithm`, where it is not null, to what was used.
FittedTransport fit_transport(const std::function<double(const std::string& command, std::string* algorithm)>& ask,
                              const std::string& name, int ranks);

}  // namespace trireme::measure
