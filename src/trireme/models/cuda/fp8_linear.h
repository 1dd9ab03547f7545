// Matrices of a linear layer in 8 bits (its weight, its input and the gradient of its output), and their matmuls.
//
//   y  = x · Wᵀ     x [rows, in],      W [out, in]
//   dx = dy · W     dy [rows, out],    Wᵀ [in, out]
//   dW = dyᵀ · x    dyᵀ [out, rows],   xᵀ [in, rows]      Hopper wants the summed dim contiguous in all of them
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/gpu/fp8.h"
#include "trireme/models/cuda/inside.h"

namespace trireme::ops::on_gpu {

/// A scale in device memory, and whether it was set from data.
struct Fp8Place {
  gpu::Fp8Scale* scale = nullptr;
  bool is_known = false;
};

/// Made by Fp8Products. Autograd nodes keep it alive.
struct Fp8Linear : torch::CustomClassHolder {
  at::Tensor weight;              ///< the parameter's values in bfloat16
  at::Tensor values, transposed;  ///< the weight in 8 bits, [out, in], and its transpose [in, out]
  at::Tensor scales;              ///< memory of the three scales
  Fp8Place of_weight, of_x, of_dy;
};
using Fp8LinearPtr = c10::intrusive_ptr<Fp8Linear>;

/// The layer with this weight, inside an Fp8Scope; null if it multiplies in its own dtype. Threads: all.
Fp8LinearPtr find_fp8(const at::Tensor& weight);

/// Whether this input can be used in 8 bits.
bool fits_fp8(const at::Tensor& x);

/// Keep a layer from a node's forward to its backward.
void keep(torch::autograd::AutogradContext* context, const char* name, const Fp8LinearPtr& linear);
Fp8LinearPtr kept(torch::autograd::AutogradContext* context, const char* name);

/// A quantised matrix [rows, cols], in the shape of its source, and its transpose [cols, rows].
struct Fp8Copies {
  at::Tensor values, transposed;
};
/// Quantises x, an input of the layer.
Fp8Copies quantised(const at::Tensor& x, Fp8Linear& linear);
/// Quantises gelu(x).
Fp8Copies quantised_gelu(const at::Tensor& x, Fp8Linear& linear);
/// Quantises layer_norm(x), which is never stored in bfloat16.
struct Fp8Normed : Fp8Copies {
  at::Tensor mean, rstd;
};
Fp8Normed quantised_layer_norm(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift, double eps,
                               Fp8Linear& linear);

/// x · Wᵀ in bfloat16, from a quantised x. `bias` and `add` may be undefined.
at::Tensor times_weight_fp8(const at::Tensor& x, const Fp8Linear& linear, const at::Tensor& bias,
                            const at::Tensor& add = {});

struct Fp8LinearGradients {
  at::Tensor dx, d_weight;  ///< always bfloat16
  at::Tensor d_bias;        ///< has the dtype of `bias`; undefined if that is
};
/// From the gradient of y, or of gelu(y) if before_gelu is defined. If dy is moved in, it is freed once quantised.
Fp8LinearGradients linear_backward_fp8(at::Tensor dy, const at::Tensor& before_gelu, const at::Tensor& x_transposed,
                                       const at::Tensor& bias, Fp8Linear& linear);

// The blocks of functions_gpu.h; x and all layers must fit.
at::Tensor mlp_block_fp8(const at::Tensor& x, const NormParameters& norm, const LinearParameters& up,
                         const LinearParameters& down, const Fp8LinearPtr& up8, const Fp8LinearPtr& down8);
at::Tensor attention_block_fp8(const at::Tensor& x, const NormParameters& norm, const LinearParameters& qkv,
                               const LinearParameters& output, int64_t heads, const Fp8LinearPtr& qkv8,
                               const Fp8LinearPtr& output8);

}  // namespace trireme::ops::on_gpu
