// Layer norm and RMS norm over the rows of a matrix, forward and backward, each row read once.
//
// Rows lie one after another, of `width` elements. Statistics and sums are float32; scale and shift are float32. The
// backward adds `residual`, the gradient that went past the norm, so that the sum costs no pass of its own. Gradients
// of scale and shift are summed in a fixed order: the same bits every time. dx may lie where dy, x or residual does.
// Rows of up to 16384 elements: UsageError beyond. Other errors: those of the launch, as Error.
#pragma once

#include "trireme/gpu/types.h"

namespace trireme::gpu {

struct NormShape {
  int64_t rows = 0;
  int64_t width = 0;
  Type type = Type::kFloat;  ///< of rows and their gradients
};

/// y = (x − mean) · rstd · scale + shift. `mean` and `rstd` (one a row) are kept for the backward. Where y is null,
/// they alone are computed, the same bits.
void layer_norm(const NormShape& shape, const void* x, const float* scale, const float* shift, float eps, void* y,
                float* mean, float* rstd, Stream stream);

/// Bytes of scratch memory that a backward of this shape needs.
size_t norm_backward_scratch(const NormShape& shape);

/// dx = residual (where not null) + the gradient through the norm. Writes d_scale and d_shift.
void layer_norm_backward(const NormShape& shape, const void* dy, const void* x, const float* scale, const float* mean,
                         const float* rstd, const void* residual, void* dx, float* d_scale, float* d_shift,
                         void* scratch, Stream stream);

/// y = x · rstd · scale, with rstd = 1 / √(mean of squares + eps).
void rms_norm(const NormShape& shape, const void* x, const float* scale, float eps, void* y, float* rstd,
              Stream stream);
void rms_norm_backward(const NormShape& shape, const void* dy, const void* x, const float* scale, const float* rstd,
                       const void* residual, void* dx, float* d_scale, void* scratch, Stream stream);

}  // namespace trireme::gpu
