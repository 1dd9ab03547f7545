// The products and sums of low_rank.h on a GPU: each sum in the host's order, so that bits are the same.
#pragma once

#include "trireme/compress/formats/low_rank.h"
#include "trireme/gpu/types.h"

namespace trireme::gpu {

/// P = M Q.
void project(const LowRank& shape, const float* group, const float* q, float* p, Stream stream);
/// Q = Mᵀ P.
void project_back(const LowRank& shape, const float* group, const float* p, float* q, Stream stream);
/// M = P Qᵀ, or M −= it.
void expand(const LowRank& shape, const float* p, const float* q, bool subtract, float* group, Stream stream);
/// `columns` is scratch for shape.num_p elements.
void make_orthonormal(const LowRank& shape, float* p, double* columns, Stream stream);
/// Of each row of each Q: Σ x²; and a multiplication with a factor of its own.
void row_squares(const LowRank& shape, const float* q, double* squares, Stream stream);
void scale_rows(const LowRank& shape, const float* factors, float* q, Stream stream);

}  // namespace trireme::gpu
