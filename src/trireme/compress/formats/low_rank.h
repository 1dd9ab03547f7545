// Matrices as products of two thin ones: what PowerSGD does to the tensors of a group.
//
// M (rows × columns) is close to P Qᵀ with P = orthonormal columns of M Q. P is rows × rank; Q is kept transposed,
// rank × columns, so that all loops run along memory. The factors of all matrices lie one after another. Threads:
// all. Nothing blocks or fails. Every sum has a fixed order: a GPU gives the same bits (compress/cuda).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace trireme {

/// Lanes of a dot product of two columns of P, which meet in a tree.
inline constexpr size_t kColumnLanes = 256;

/// The matrices of a group that travel as factors.
struct LowRank {
  struct Matrix {
    size_t offset = 0;  ///< in the group
    size_t rows = 0, columns = 0;
    size_t p = 0, q = 0;  ///< where its factors begin
  };
  size_t rank = 0;
  std::vector<Matrix> matrices = {};
  size_t num_p = 0, num_q = 0;  ///< elements of all P, of all Q

  void add(size_t offset, size_t rows, size_t columns) {
    matrices.push_back({offset, rows, columns, num_p, num_q});
    num_p += rows * rank;
    num_q += columns * rank;
  }
  /// Rows of all Q together.
  size_t num_rows_of_q() const { return matrices.size() * rank; }
};

/// Whether two thin matrices of this rank are smaller than the matrix.
inline bool is_worth_factoring(size_t rows, size_t columns, size_t rank) {
  return rows > 1 && columns > 1 && rank * (rows + columns) < rows * columns;
}

// Of all matrices. `group` holds them at their offsets.
/// P = M Q.
void project(const LowRank& shape, std::span<const float> group, std::span<const float> q, std::span<float> p);
/// Makes the columns of each P orthonormal, one after another (Gram and Schmidt, twice, in double). A column that
/// depends on those before it, and one that is 0, becomes 0.
void make_orthonormal(const LowRank& shape, std::span<float> p);
/// Q = Mᵀ P.
void project_back(const LowRank& shape, std::span<const float> group, std::span<const float> p, std::span<float> q);
/// M = P Qᵀ, or M −= it.
void expand(const LowRank& shape, std::span<const float> p, std::span<const float> q, bool subtract,
            std::span<float> group);
/// Σ x² of each row of each Q, as dot_product().
std::vector<double> row_squares(const LowRank& shape, std::span<const float> q);
/// Multiplies each row of each Q with a factor of its own.
void scale_rows(const LowRank& shape, std::span<const float> factors, std::span<float> q);

}  // namespace trireme
