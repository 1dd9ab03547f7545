// Activations, rotary positions, dropout and sums over columns: each reads its operands once.
#pragma once

#include "trireme/gpu/types.h"

namespace trireme::gpu {

/// With the approximation by tanh. May work in place.
void gelu(const void* x, void* y, int64_t count, Type type, Stream stream);
void gelu_backward(const void* x, const void* dy, void* dx, int64_t count, Type type, Stream stream);

/// y[i, j] = silu(gate[i, j]) · up[i, j]; rows of gate and up are `stride` elements apart, rows of y `width`.
struct SwigluShape {
  int64_t rows = 0;
  int64_t width = 0;
  int64_t stride = 0;
  Type type = Type::kFloat;
};
void swiglu(const SwigluShape& shape, const void* gate, const void* up, void* y, Stream stream);
/// d_gate and d_up are laid out like gate and up.
void swiglu_backward(const SwigluShape& shape, const void* gate, const void* up, const void* dy, void* d_gate,
                     void* d_up, Stream stream);

/// Turns the first `heads` heads of each row of x in place: element i with element i + head_dim / 2, by the angle of
/// the row's position (row modulo seq), as cosine and sine [seq, head_dim / 2] give it. `back` turns the other way:
/// that is the gradient. Rows are `stride` elements apart.
struct RotaryShape {
  int64_t rows = 0;
  int64_t seq = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t stride = 0;
  Type type = Type::kFloat;
};
void rotate(const RotaryShape& shape, void* x, const float* cosine, const float* sine, bool back, Stream stream);

/// sums[j] = Σ over rows of x[i, j], float32, in a fixed order.
size_t column_sums_scratch(int64_t rows, int64_t width);
void column_sums(const void* x, int64_t rows, int64_t width, Type type, float* sums, void* scratch, Stream stream);

/// Which elements are dropped: element i where number first + i of the stream (base/philox.h) is below p. The others
/// are multiplied by `kept`, rounded to the type. The same mask gives the gradient. May work in place.
struct DropoutMask {
  uint32_t key[2] = {};
  uint64_t step = 0;
  uint64_t first = 0;
  float p = 0;
  float kept = 1;
};
void dropout(const void* x, void* y, int64_t count, const DropoutMask& mask, Type type, Stream stream);

/// Converts between types, rounding to nearest even.
void convert(const void* from, Type from_type, void* to, Type to_type, int64_t count, Stream stream);

}  // namespace trireme::gpu
