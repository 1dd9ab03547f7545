// Layer norm.
#include "trireme/gpu/kernels/norm_kernels.cuh"

namespace trireme::gpu {

size_t norm_backward_scratch(const NormShape& shape) {
  int64_t blocks = 0;  // of the team that wants the most: which one it is depends on the alignment of the operands
  const auto count = [&](auto team) { blocks = std::max(blocks, team.backward_blocks(shape.rows)); };
  with_norm_team<2>(shape.width, count);
  with_norm_team<4>(shape.width, count);
  return static_cast<size_t>(blocks * shape.width) * 2 * sizeof(float);
}

void layer_norm(const NormShape& shape, const void* x, const float* scale, const float* shift, float eps, void* y,
                float* mean, float* rstd, Stream stream) {
  launch_norm_forward<true>(shape, x, scale, shift, eps, y, mean, rstd, stream);
}

void layer_norm_backward(const NormShape& shape, const void* dy, const void* x, const float* scale, const float* mean,
                         const float* rstd, const void* residual, void* dx, float* d_scale, float* d_shift,
                         void* scratch, Stream stream) {
  launch_norm_backward<true>(shape, dy, x, scale, mean, rstd, residual, dx, d_scale, d_shift, scratch, stream);
}

}  // namespace trireme::gpu
