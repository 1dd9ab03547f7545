// A linear layer's matrices in 8 bits: its weights, its input and the gradient of its output, and their products.
//
//   y  = x · Wᵀ     x [rows, in],      W [out, in]
//   dx = dy · W     dy [rows, out],    Wᵀ [in, out]
//   dW = dyᵀ · x    dyᵀ [out, rows],   xᵀ [in, rows]      all with rows along the summed dimension, as Hopper wants it
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include "trireme/gpu/fp8.h"
#include "trireme/models/cuda/inside.h"

namespace trireme::ops::on_gpu {

/// A scale in device memory, and whether it was set from something that was seen.
struct Fp8Place {
  gpu::Fp8Scale* scale = nullptr;
  bool is_known = false;
};

/// Made by Fp8Products. Nodes of the graph hold it while they live.
struct Fp8Linear : torch::CustomClassHolder {
  at::Tensor weight;              ///< the parameter's values in bfloat16
  at::Tensor values, transposed;  ///< the same in 8 bits: [out, in] and [in, out]
  at::Tensor scales;              ///< the memory of the places
  Fp8Place of_weight, of_x, of_dy;
};
using Fp8LinearPtr = c10::intrusive_ptr<Fp8Linear>;

/// For the layer with this weight, inside an Fp8Scope; null where it multiplies in its own type. Threads: all.
Fp8LinearPtr find_fp8(const at::Tensor& weight);

/// Whether this input can be used in 8 bits.
bool fits_fp8(const at::Tensor& x);

/// [rows, cols] in the shape of what was quantised, and [cols, rows].
struct Fp8Copies {
  at::Tensor values, transposed;
};
Fp8Copies quantised(const at::Tensor& x, Fp8Place& place, gpu::Fp8 type);
/// Of gelu(x).
Fp8Copies quantised_gelu(const at::Tensor& x, Fp8Linear& linear);
/// Of layer_norm(x), which is never there in bfloat16.
struct Fp8Normed : Fp8Copies {
  at::Tensor mean, rstd;
};
Fp8Normed quantised_layer_norm(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift, double eps,
                               Fp8Linear& linear);
/// Of dy, or of dy · gelu'(before_gelu) where that is defined; with the sums of its columns in the type of `like` where
/// that is.
struct Fp8Gradient : Fp8Copies {
  at::Tensor sums;
};
Fp8Gradient quantised_gradient(const at::Tensor& dy, const at::Tensor& before_gelu, const at::Tensor& like,
                               Fp8Linear& linear);

// Products, of 8-bit operands as above; results are bfloat16.
/// `bias` and `add` may be undefined.
at::Tensor times_weight_fp8(const at::Tensor& x, const Fp8Linear& linear, const at::Tensor& bias,
                            const at::Tensor& add = {});
at::Tensor gradient_of_x_fp8(const at::Tensor& dy, const Fp8Linear& linear);
at::Tensor gradient_of_weight_fp8(const at::Tensor& dy_transposed, const at::Tensor& x_transposed,
                                  const Fp8Linear& linear);

// The blocks of functions_gpu.h; x fits, and so do the others.
at::Tensor mlp_block_fp8(const at::Tensor& x, const NormParameters& norm, const LinearParameters& up,
                         const LinearParameters& down, const Fp8LinearPtr& up8, const Fp8LinearPtr& down8);
at::Tensor attention_block_fp8(const at::Tensor& x, const NormParameters& norm, const LinearParameters& qkv,
                               const LinearParameters& output, int64_t heads, const Fp8LinearPtr& qkv8,
                               const Fp8LinearPtr& output8);

}  // namespace trireme::ops::on_gpu
