// Matmuls of any size on the tiles of kernels/kernels.h, and their scratch memory.
#pragma once

#include "trireme/models/kernels/kernels.h"

namespace trireme::model_kernels {

/// Whether multiply() is faster than libtorch's BLAS: on AMD processors with AVX-512, which that BLAS does not use.
bool multiply_pays();

/// c[i · columns + j] = bias[j] + Σ a(i, k) · b(k, j), in blocks of kMaxDepth along k, each a single chain of fused
/// multiply-adds. An element's bits depend only on its row of A, its column of B and its bias. Of A and of B either
/// stride is 1.
void multiply(const Kernels& kernels, int64_t rows, int64_t columns, int64_t depth, const Matrix& a, const Matrix& b,
              const float* bias, float* c);

/// Thread-local scratch memory for `floats` floats, valid until the thread's next call with the same slot.
enum class ScratchSlot { kPackedB, kAttention };
float* scratch(ScratchSlot slot, int64_t floats);

}  // namespace trireme::model_kernels
