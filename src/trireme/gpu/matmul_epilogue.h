// The bias of a product for which cuBLASLt has no epilogue.
#pragma once

#include "trireme/gpu/types.h"

namespace trireme::gpu {

/// to[i, j] = from[i, j] + bias[j], for a matrix [rows, width] of `type`. `to` may be `from`.
void add_bias(const void* from, void* to, Type type, const void* bias, Type bias_type, int64_t rows, int64_t width,
              Stream stream);

}  // namespace trireme::gpu
