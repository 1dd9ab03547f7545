// Statistics of times, and the lines that are fitted through them: plain functions of numbers.
//
// Errors count as ratios, so that a microsecond matters for small messages and not for large ones.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "trireme/mesh/cluster_file.h"

namespace trireme::measure {

/// Size in bytes and time in µs of each measurement.
using Timings = std::vector<std::pair<double, double>>;

/// The value below which `part` of the sorted values are: 0.5 for the median (the upper one of an even number).
double quantile(const std::vector<double>& sorted, double part);
double median(std::vector<double> values);

/// α + nβ, neither below 0, with the least squares of relative errors.
LinkCost fit_line(std::span<const Timings::value_type> timings);
/// µs per byte, without a constant part: the geometric mean.
double fit_rate(std::span<const Timings::value_type> timings);
/// The median of |predicted − measured| / measured over pairs of both; 0 where there are none.
double median_error(std::span<const std::pair<double, double>> predicted_and_measured);

}  // namespace trireme::measure
