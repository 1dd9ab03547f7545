// `trireme bench comm --write-cluster`: the constants of the cost formulas, measured on this machine and fitted.
//
//   constant                  from
//   α latency, β per byte     steps of a ring (all send right and receive left at once) of several sizes: least squares
//   γ per byte reduced, copy  adding and copying vectors in the caches and beyond, on all ranks at once
//   barrier                   the median of many
//
// Errors count as ratios, so that a microsecond matters for small messages and not for large ones. One γ has to do for
// all sizes, in the caches and beyond: the geometric mean of both sides.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/cli/bench_comm_crew.h"
#include "trireme/cli/bench_comm_options.h"
#include "trireme/mesh/cluster_file.h"

namespace trireme::cli {

/// (bytes, µs)
using Timings = std::vector<std::pair<double, double>>;

/// α + nβ, neither below 0.
LinkCost fit_line(std::span<const std::pair<double, double>> timings);
/// µs a byte, without a constant part: the geometric mean.
double fit_rate(std::span<const std::pair<double, double>> timings);
/// Of |predicted − measured| / measured.
double median_error(std::span<const std::pair<double, double>> predicted_and_measured);

/// One transport with one number of ranks.
struct FittedTransport {
  TransportCost cost;
  double link_error = 0;                                ///< median, of the line through the messages
  double reduce_in_cache = 0, reduce_out_of_cache = 0;  ///< µs a byte
  double copy_in_cache = 0, copy_out_of_cache = 0;      ///< µs a byte
  Timings all_reduce;                                   ///< measured, with the algorithm that the tuner takes
  std::vector<double> all_reduce_predicted;             ///< µs, for the same sizes
  double all_reduce_error = 0;                          ///< median
};

struct Fit {
  std::vector<FittedTransport> transports;
  std::vector<std::string> left_out;  ///< "mpi with 2 ranks: why"
  std::filesystem::path path;
};

/// Measures every transport that can be started here with each number of ranks, and merges the constants into the file.
Fit fit_cluster(const BenchCommOptions& options, Guardian& guardian);

std::string fit_text(const Fit& fit, bool colour);
nlohmann::ordered_json fit_json(const Fit& fit);

}  // namespace trireme::cli
