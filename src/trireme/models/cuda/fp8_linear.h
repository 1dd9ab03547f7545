// A linear layer's matrices in 8 bits: its weights, its input and the gradient of its output, and their products.
//
//   y  = x · Wᵀ     x [rows, in],      W [out, in]
//   dx = dy · W     dy [rows, out],    Wᵀ [in, out]
//   dW = dyᵀ · x    dyᵀ [out, rows],   xᵀ [in, rows]      all with rows along the summed dimension, as Hopper wants it
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

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

/// From the forward of a node to its backward.
void keep(torch::autograd::AutogradContext* context, const char* name, const Fp8LinearPtr& linear);
Fp8LinearPtr kept(torch::autograd::AutogradContext* context, const char* name);

/// [rows, cols] in the shape of what was quantised, and [cols, rows].
struct Fp8Copies {
  at::Tensor values, transposed;
};
/// Of x, an input of the layer.
Fp8Copies quantised(const at::Tensor& x, Fp8Linear& linear);
/// Of gelu(x).
Fp8Copies quantised_gelu(const at::Tensor& x, Fp8Linear& linear);
/// Of layer_norm(x), which is never there in bfloat16.
struct Fp8Normed : Fp8Copies {
  at::Tensor mean, rstd;
};
Fp8Normed quantised_layer_norm(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift, double eps,
                               Fp8Linear& linear);

/// Of x in 8 bits, in bfloat16. `bias` and `add` may be undefined.
at::Tensor times_weight_fp8(const at::Tensor& x, const Fp8Linear& linear, const at::Tensor& bias,
                            const at::Tensor& add = {});

struct Fp8LinearGradients {
  at::Tensor dx, d_weight;  ///< in bfloat16
  at::Tensor d_bias;        ///< in the type of `bias`; undefined where that is
};
/// From the gradient of y, or, where before_gelu is defined, of gelu(y). A dy that is moved in goes once it is
/// quantised.
Fp8LinearGradients linear_backward_fp8(at::Tensor dy, const at::Tensor& before_gelu, const at::Tensor& x_transposed,
                                       const at::Tensor& bias, Fp8Linear& linear);

// The blocks of functions_gpu.h; x fits, and so do the others.
at::Tensor mlp_block_fp8(const at::Tensor& x, const NormParameters& norm, const LinearParameters& up,
                         const LinearParameters& down, const Fp8LinearPtr& up8, const Fp8LinearPtr& down8);
at::Tensor attention_block_fp8(const at::Tensor& x, const NormParameters& norm, const LinearParameters& qkv,
                               const LinearParameters& output, int64_t heads, const Fp8LinearPtr& qkv8,
                               const Fp8LinearPtr& output8);

}  // namespace trireme::ops::on_gpu
