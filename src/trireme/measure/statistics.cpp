#include "trireme/measure/statistics.h"

#include <algorithm>
#include <cmath>

namespace trireme::measure {

double quantile(const std::vector<double>& sorted, double part) {
  return sorted.at(static_cast<size_t>(part * static_cast<double>(sorted.size() - 1) + 0.5));
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return quantile(values, 0.5);
}

LinkCost fit_line(std::span<const Timings::value_type> timings) {
  LinkCost line;
  constexpr int kIterations = 20;
  for (int i = 0; i < kIterations; ++i) {
    // Normal equations. The weight 1 / (measured · predicted) makes twice as much as bad as half as much.
    double w = 0, wn = 0, wnn = 0, wt = 0, wnt = 0;
    for (const auto& [n, t] : timings) {
      const double weight = 1 / (t * (i == 0 ? t : line.latency_us + n * line.us_per_byte));
      w += weight;
      wn += weight * n;
      wnn += weight * n * n;
      wt += weight * t;
      wnt += weight * n * t;
    }
    const double determinant = w * wnn - wn * wn;
    if (!(determinant > 0)) return line;
    line = {(wnn * wt - wn * wnt) / determinant, (w * wnt - wn * wt) / determinant};
    if (line.latency_us <= 0) return {0, wnt / wnn};
    if (line.us_per_byte <= 0) return {wt / w, 0};
  }
  return line;
}

double fit_rate(std::span<const Timings::value_type> timings) {
  double sum = 0;
  for (const auto& [n, t] : timings) sum += std::log(t / n);
  return timings.empty() ? 0 : std::exp(sum / static_cast<double>(timings.size()));
}

double median_error(std::span<const std::pair<double, double>> predicted_and_measured) {
  std::vector<double> errors;
  for (const auto& [predicted, measured] : predicted_and_measured) {
    errors.push_back(std::fabs(predicted - measured) / measured);
  }
  return errors.empty() ? 0 : median(errors);
}

}  // namespace trireme::measure
