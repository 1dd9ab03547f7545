#include "trireme/compress/formats/low_rank.h"

#include <cmath>

#include "trireme/compress/formats/arithmetic.h"
#include "trireme/compress/formats/kernels.h"

namespace trireme {
namespace {

using compress_kernels::Store;

double dot_of_columns(const std::vector<double>& a, const std::vector<double>& b) {
  double lanes[kColumnLanes] = {};
  size_t i = 0;
  for (; i + kColumnLanes <= a.size(); i += kColumnLanes) {
    for (size_t lane = 0; lane < kColumnLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  }
  for (size_t lane = 0; i < a.size(); ++i, ++lane) lanes[lane] += a[i] * b[i];
  for (size_t half = kColumnLanes / 2; half > 0; half /= 2) {
    for (size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

void make_columns_orthonormal(float* p, size_t rows, size_t rank) {
  std::vector<std::vector<double>> columns(rank, std::vector<double>(rows));
  for (size_t i = 0; i < rows; ++i) {
    for (size_t k = 0; k < rank; ++k) columns[k][i] = p[i * rank + k];
  }
  for (size_t k = 0; k < rank; ++k) {
    std::vector<double>& column = columns[k];
    const double before = dot_of_columns(column, column);
    for (int pass = 0; pass < 2; ++pass) {  // the second takes away what rounding has left
      for (size_t earlier = 0; earlier < k; ++earlier) {
        const double along = dot_of_columns(column, columns[earlier]);
        for (size_t i = 0; i < rows; ++i) column[i] -= along * columns[earlier][i];
      }
    }
    const double square = dot_of_columns(column, column);
    // Below this only the rounding of float32 is left, which points anywhere. A NaN stays a NaN.
    const bool dependent = square <= before * 1e-12 || square < 1e-70;
    const double factor = dependent ? 0 : 1 / std::sqrt(square);
    for (double& value : column) value *= factor;
  }
  for (size_t i = 0; i < rows; ++i) {
    for (size_t k = 0; k < rank; ++k) p[i * rank + k] = static_cast<float>(columns[k][i]);
  }
}

}  // namespace

void project(const LowRank& shape, std::span<const float> group, std::span<const float> q, std::span<float> p) {
  for (const LowRank::Matrix& m : shape.matrices) {
    compress_kernels::fastest().project(group.data() + m.offset, m.rows, m.columns, q.data() + m.q, shape.rank,
                                        p.data() + m.p);
  }
}

void make_orthonormal(const LowRank& shape, std::span<float> p) {
  for (const LowRank::Matrix& m : shape.matrices) make_columns_orthonormal(p.data() + m.p, m.rows, shape.rank);
}

void project_back(const LowRank& shape, std::span<const float> group, std::span<const float> p, std::span<float> q) {
  for (const LowRank::Matrix& m : shape.matrices) {
    compress_kernels::fastest().project_back(group.data() + m.offset, m.rows, m.columns, p.data() + m.p, shape.rank,
                                             q.data() + m.q);
  }
}

void expand(const LowRank& shape, std::span<const float> p, std::span<const float> q, bool subtract,
            std::span<float> group) {
  for (const LowRank::Matrix& m : shape.matrices) {
    compress_kernels::fastest().expand(p.data() + m.p, q.data() + m.q, m.rows, m.columns, shape.rank,
                                       subtract ? Store::kSubtract : Store::kSet, group.data() + m.offset);
  }
}

std::vector<double> row_squares(const LowRank& shape, std::span<const float> q) {
  std::vector<double> squares;
  for (const LowRank::Matrix& m : shape.matrices) {
    for (size_t k = 0; k < shape.rank; ++k) {
      const auto row = q.subspan(m.q + k * m.columns, m.columns);
      squares.push_back(dot_product(row, row));
    }
  }
  return squares;
}

void scale_rows(const LowRank& shape, std::span<const float> factors, std::span<float> q) {
  for (size_t i = 0; i < shape.matrices.size(); ++i) {
    const LowRank::Matrix& m = shape.matrices[i];
    for (size_t k = 0; k < shape.rank; ++k) {
      scale_by(q.subspan(m.q + k * m.columns, m.columns), factors[i * shape.rank + k]);
    }
  }
}

}  // namespace trireme
