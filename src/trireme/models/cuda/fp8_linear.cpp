#include "trireme/models/cuda/fp8_linear.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "trireme/gpu/kernels/norm.h"
#include "trireme/gpu/kernels/pointwise.h"
#include "trireme/gpu/matmul_fp8.h"
#include "trireme/models/functions_inside.h"

namespace trireme::ops::on_gpu {
namespace {

using gpu::Fp8;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Fast accumulation keeps about 14 bits. A weight's gradient is a sum over all tokens, where that would cost accuracy;
// elsewhere it disappears in the rounding of the operands.
constexpr bool kFastAlongWidth = true, kFastAlongTokens = false;

Fp8Copies room_for(const at::Tensor& x) {
  const auto bytes = x.options().dtype(at::kByte);
  return {at::empty(x.sizes(), bytes), at::empty({x.size(-1), rows_of(x)}, bytes)};
}

/// Measures the scale of a matrix that was never seen from the matrix itself; `make` returns it in bfloat16.
template <typename Make>
void know(Fp8Place& place, Make make) {
  if (place.is_known) return;
  const at::Tensor x = make();
  gpu::measure(x.const_data_ptr(), x.numel(), place.scale, current_stream());
  gpu::update_scales(place.scale, 1, current_stream());
  place.is_known = true;
}

struct Operand8 {
  const at::Tensor& values;
  Fp8 type;
  const gpu::Fp8Scale* scale;
};

/// a[m, k] · b[n, k]ᵀ into `out`.
void multiply(const at::Tensor& out, const Operand8& a, const Operand8& b, bool fast, const at::Tensor& bias = {},
              const at::Tensor& add = {}) {
  gpu::MatmulFp8 product;
  product.m = rows_of(out);
  product.n = out.size(-1);
  product.k = a.values.size(-1);
  product.a = {a.values.const_data_ptr(), a.type, a.scale};
  product.b = {b.values.const_data_ptr(), b.type, b.scale};
  product.out = out.mutable_data_ptr();
  if (add.defined()) product.add = add.const_data_ptr();
  if (bias.defined()) {
    product.epilogue = gpu::Epilogue::kBias;
    product.bias = bias.const_data_ptr();
  }
  product.fast_accumulation = fast;
  gpu::matmul_fp8(product, current_stream());
}

/// Quantised dy, or dy · gelu'(before_gelu) if that is defined; with its column sums in the dtype of `like` if that is
/// defined.
struct Fp8Gradient : Fp8Copies {
  at::Tensor sums;
};
Fp8Gradient quantised_gradient(const at::Tensor& dy, const at::Tensor& before_gelu, const at::Tensor& like,
                               Fp8Linear& linear) {
  know(linear.of_dy, [&] {
    if (!before_gelu.defined()) return dy;
    const auto dx = at::empty_like(dy);
    gpu::gelu_backward(before_gelu.const_data_ptr(), dy.const_data_ptr(), dx.mutable_data_ptr(), dy.numel(),
                       type_of(dy), current_stream());
    return dx;
  });
  const int64_t rows = rows_of(dy), width = dy.size(-1);
  Fp8Gradient result{room_for(dy), {}};
  at::Tensor sums, room;
  if (like.defined()) {
    sums = at::empty({width}, dy.options().dtype(at::kFloat));
    room = scratch(gpu::quantise_gradient_scratch(rows, width), dy);
  }
  gpu::quantise_gradient(dy.const_data_ptr(), before_gelu.defined() ? before_gelu.const_data_ptr() : nullptr, rows,
                         width, linear.of_dy.scale, result.values.mutable_data_ptr(),
                         result.transposed.mutable_data_ptr(),
                         sums.defined() ? sums.mutable_data_ptr<float>() : nullptr,
                         room.defined() ? room.mutable_data_ptr() : nullptr, current_stream());
  if (sums.defined()) result.sums = sums.to(like.scalar_type());
  return result;
}

at::Tensor gradient_of_x(const at::Tensor& dy, const Fp8Linear& linear) {
  const auto out = with_last_dim(dy, linear.values.size(1), at::kBFloat16);
  multiply(out, {dy, Fp8::kE5M2, linear.of_dy.scale}, {linear.transposed, Fp8::kE4M3, linear.of_weight.scale},
           kFastAlongWidth);
  return out;
}

at::Tensor gradient_of_weight(const at::Tensor& dy_transposed, const at::Tensor& x_transposed,
                              const Fp8Linear& linear) {
  const auto out = at::empty(linear.values.sizes(), x_transposed.options().dtype(at::kBFloat16));
  multiply(out, {dy_transposed, Fp8::kE5M2, linear.of_dy.scale}, {x_transposed, Fp8::kE4M3, linear.of_x.scale},
           kFastAlongTokens);
  return out;
}

/// A linear layer outside the fused blocks.
class LinearFp8 : public torch::autograd::Function<LinearFp8> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, const Fp8LinearPtr& linear) {
    (void)weight;
    const Fp8Copies x8 = quantised(x, *linear);
    context->save_for_backward({x8.transposed, bias.value_or(at::Tensor())});
    keep(context, "linear", linear);
    return times_weight_fp8(x8.values, *linear, bias ? in_type_of(*bias, x) : at::Tensor());
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    demand_first_order("linear");
    const auto saved = context->get_saved_variables();
    const auto d = linear_backward_fp8(packed(gradients[0]), {}, saved[0], saved[1], *kept(context, "linear"));
    return {d.dx, d.d_weight, d.d_bias, {}};
  }
};

}  // namespace

bool fits_fp8(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 && x.numel() > 0 && x.size(-1) % gpu::kFp8Multiple == 0 &&
         rows_of(x) % gpu::kFp8Multiple == 0;
}

void keep(AutogradContext* context, const char* name, const Fp8LinearPtr& linear) {
  context->saved_data[name] = c10::IValue::make_capsule(linear);
}

Fp8LinearPtr kept(AutogradContext* context, const char* name) {
  return c10::static_intrusive_pointer_cast<Fp8Linear>(context->saved_data[name].toCapsule());
}

Fp8Copies quantised(const at::Tensor& x, Fp8Linear& linear) {
  know(linear.of_x, [&] { return x; });
  Fp8Copies copies = room_for(x);
  gpu::quantise(x.const_data_ptr(), rows_of(x), x.size(-1), Fp8::kE4M3, linear.of_x.scale,
                copies.values.mutable_data_ptr(), copies.transposed.mutable_data_ptr(), current_stream());
  return copies;
}

Fp8Copies quantised_gelu(const at::Tensor& x, Fp8Linear& linear) {
  know(linear.of_x, [&] {
    const auto y = at::empty_like(x);
    gpu::gelu(x.const_data_ptr(), y.mutable_data_ptr(), x.numel(), type_of(x), current_stream());
    return y;
  });
  Fp8Copies copies = room_for(x);
  gpu::quantise_gelu(x.const_data_ptr(), rows_of(x), x.size(-1), linear.of_x.scale, copies.values.mutable_data_ptr(),
                     copies.transposed.mutable_data_ptr(), current_stream());
  return copies;
}

Fp8Normed quantised_layer_norm(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift, double eps,
                               Fp8Linear& linear) {
  know(linear.of_x, [&] { return apply_layer_norm(x, scale, shift, eps).y; });
  const int64_t rows = rows_of(x), width = x.size(-1);
  const auto floats = x.options().dtype(at::kFloat);
  Fp8Normed result{room_for(x), at::empty({rows}, floats), at::empty({rows}, floats)};
  gpu::Fp8Norm norm;
  norm.weight = scale.const_data_ptr<float>();
  norm.shift = shift.const_data_ptr<float>();
  norm.mean = result.mean.const_data_ptr<float>();
  norm.rstd = result.rstd.const_data_ptr<float>();
  gpu::layer_norm({rows, width, type_of(x)}, x.const_data_ptr(), norm.weight, norm.shift, static_cast<float>(eps),
                  nullptr, result.mean.mutable_data_ptr<float>(), result.rstd.mutable_data_ptr<float>(),
                  current_stream());
  gpu::quantise_layer_norm(x.const_data_ptr(), norm, rows, width, linear.of_x.scale, result.values.mutable_data_ptr(),
                           result.transposed.mutable_data_ptr(), current_stream());
  return result;
}

at::Tensor times_weight_fp8(const at::Tensor& x, const Fp8Linear& linear, const at::Tensor& bias,
                            const at::Tensor& add) {
  const auto out = with_last_dim(x, linear.values.size(0), at::kBFloat16);
  multiply(out, {x, Fp8::kE4M3, linear.of_x.scale}, {linear.values, Fp8::kE4M3, linear.of_weight.scale},
           kFastAlongWidth, bias, add);
  return out;
}

Fp8LinearGradients linear_backward_fp8(at::Tensor dy, const at::Tensor& before_gelu, const at::Tensor& x_transposed,
                                       const at::Tensor& bias, Fp8Linear& linear) {
  const Fp8Gradient dy8 = quantised_gradient(dy, before_gelu, bias, linear);
  dy.reset();
  return {gradient_of_x(dy8.values, linear), gradient_of_weight(dy8.transposed, x_transposed, linear), dy8.sums};
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const Fp8LinearPtr found = find_fp8(weight);
  if (!found || !fits_fp8(x)) return {};
  return LinearFp8::apply(packed(x), weight, bias.defined() ? std::optional(bias) : std::nullopt, found);
}

}  // namespace trireme::ops::on_gpu
