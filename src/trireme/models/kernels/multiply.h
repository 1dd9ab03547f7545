// Matrix products of any size on the tiles of kernels/kernels.h, and the memory they work in.
#pragma once

#include "trireme/models/kernels/kernels.h"

namespace trireme::model_kernels {

/// Whether multiply() is faster than libtorch's BLAS here: on processors of AMD with AVX-512, which that does not use.
bool multiply_pays();

/// c[i · columns + j] = bias[j] + Σ a(i, k) · b(k, j), by blocks of kMaxDepth of the depth, each one chain of fused
/// multiply-adds. An element's bits depend on its row of A, its column of B and its bias alone. Of A and of B either
/// stride is 1.
void multiply(const Kernels& kernels, int64_t rows, int64_t columns, int64_t depth, const Matrix& a, const Matrix& b,
              const float* bias, float* c);

/// Memory of the calling thread, for floats that nobody else needs; valid until the thread's next call with the slot.
enum class ScratchSlot { kPackedB, kAttention };
float* scratch(ScratchSlot slot, int64_t floats);

}  // namespace trireme::model_kernels
