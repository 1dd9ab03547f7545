#include "trireme/compress/low_rank.h"

#include <cmath>
#include <vector>

namespace trireme {

void make_orthonormal(std::span<float> p, size_t rows, size_t rank) {
  std::vector<std::vector<double>> columns(rank, std::vector<double>(rows));
  for (size_t i = 0; i < rows; ++i) {
    for (size_t k = 0; k < rank; ++k) columns[k][i] = p[i * rank + k];
  }
  const auto dot = [rows](const std::vector<double>& a, const std::vector<double>& b) {
    double lanes[4] = {};
    for (size_t i = 0; i < rows; ++i) lanes[i % 4] += a[i] * b[i];
    return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
  };
  for (size_t k = 0; k < rank; ++k) {
    std::vector<double>& column = columns[k];
    const double before = dot(column, column);
    for (int pass = 0; pass < 2; ++pass) {  // the second takes away what rounding has left
      for (size_t earlier = 0; earlier < k; ++earlier) {
        const double along = dot(column, columns[earlier]);
        for (size_t i = 0; i < rows; ++i) column[i] -= along * columns[earlier][i];
      }
    }
    const double square = dot(column, column);
    // Below this only the rounding of float32 is left, which points anywhere. A NaN stays a NaN.
    const bool dependent = square <= before * 1e-12 || square < 1e-70;
    const double factor = dependent ? 0 : 1 / std::sqrt(square);
    for (double& value : column) value *= factor;
  }
  for (size_t i = 0; i < rows; ++i) {
    for (size_t k = 0; k < rank; ++k) p[i * rank + k] = static_cast<float>(columns[k][i]);
  }
}

}  // namespace trireme
