// A matrix as the product of two thin ones: what PowerSGD does to one tensor.
//
// M (rows × columns) is close to P Qᵀ with P = orthonormal columns of M Q. P is rows × rank; Q is kept transposed,
// rank × columns, so that all loops run along memory. Threads: all. Nothing blocks or fails.
#pragma once

#include <cstddef>
#include <span>

namespace trireme {

/// Makes the columns of P (rows × rank) orthonormal, one after another (Gram and Schmidt, twice, in double). A column
/// that depends on those before it, and one that is 0, becomes 0.
void make_orthonormal(std::span<float> p, size_t rows, size_t rank);

/// Whether two thin matrices of this rank are smaller than the matrix.
inline bool is_worth_factoring(size_t rows, size_t columns, size_t rank) {
  return rows > 1 && columns > 1 && rank * (rows + columns) < rows * columns;
}

}  // namespace trireme
