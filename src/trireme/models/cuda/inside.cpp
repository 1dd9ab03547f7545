#include "trireme/models/cuda/inside.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "trireme/gpu/kernels/norm.h"
#include "trireme/gpu/kernels/pointwise.h"
#include "trireme/models/functions_inside.h"

namespace trireme::ops::on_gpu {
namespace {

at::Tensor float_vector(int64_t count, const at::Tensor& like) {
  return at::empty({count}, like.options().dtype(at::kFloat));
}

gpu::NormShape norm_shape(const at::Tensor& x) { return {rows_of(x), x.size(-1), type_of(x)}; }

}  // namespace

bool serves(const at::Tensor& x) {
  return x.is_cuda() && !plain_wanted() &&
         (x.scalar_type() == at::kFloat || x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16);
}

void choose_by_timing(bool on) { gpu::set_matmul_search(on); }

gpu::Type type_of(const at::Tensor& x) {
  return x.scalar_type() == at::kFloat  ? gpu::Type::kFloat
         : x.scalar_type() == at::kHalf ? gpu::Type::kHalf
                                        : gpu::Type::kBFloat16;
}

gpu::Stream current_stream() { return at::cuda::getCurrentCUDAStream().stream(); }

at::Tensor scratch(size_t num_bytes, const at::Tensor& like) {
  return at::empty({static_cast<int64_t>(num_bytes)}, like.options().dtype(at::kByte));
}

at::Tensor packed(const at::Tensor& x) {
  const auto y = x.contiguous();
  return reinterpret_cast<uintptr_t>(y.const_data_ptr()) % 16 == 0 ? y : y.clone();
}

int64_t rows_of(const at::Tensor& x) { return x.numel() / x.size(-1); }

at::Tensor with_last_dim(const at::Tensor& x, int64_t last, std::optional<at::ScalarType> type) {
  auto shape = x.sizes().vec();
  shape.back() = last;
  return at::empty(shape, x.options().dtype(type.value_or(x.scalar_type())));
}

at::Tensor in_type_of(const at::Tensor& vector, const at::Tensor& like) { return vector.to(like.scalar_type()); }

at::Tensor column_sums(const at::Tensor& x, const at::Tensor& like) {
  const int64_t width = x.size(-1), rows = rows_of(x);
  const auto sums = float_vector(width, x);
  const auto room = scratch(gpu::column_sums_scratch(rows, width), x);
  gpu::column_sums(x.const_data_ptr(), rows, width, type_of(x), sums.mutable_data_ptr<float>(), room.mutable_data_ptr(),
                   current_stream());
  return sums.to(like.scalar_type());
}

Normed apply_layer_norm(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift, double eps) {
  const gpu::NormShape shape = norm_shape(x);
  Normed result{at::empty_like(x), float_vector(shape.rows, x), float_vector(shape.rows, x)};
  gpu::layer_norm(shape, x.const_data_ptr(), scale.const_data_ptr<float>(), shift.const_data_ptr<float>(),
                  static_cast<float>(eps), result.y.mutable_data_ptr(), result.mean.mutable_data_ptr<float>(),
                  result.rstd.mutable_data_ptr<float>(), current_stream());
  return result;
}

NormGradients layer_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& scale,
                                  const at::Tensor& mean, const at::Tensor& rstd, const at::Tensor& residual) {
  const gpu::NormShape shape = norm_shape(x);
  NormGradients result{at::empty_like(x), float_vector(shape.width, x), float_vector(shape.width, x)};
  const auto room = scratch(gpu::norm_backward_scratch(shape), x);
  gpu::layer_norm_backward(shape, dy.const_data_ptr(), x.const_data_ptr(), scale.const_data_ptr<float>(),
                           mean.const_data_ptr<float>(), rstd.const_data_ptr<float>(),
                           residual.defined() ? residual.const_data_ptr() : nullptr, result.dx.mutable_data_ptr(),
                           result.d_scale.mutable_data_ptr<float>(), result.d_shift.mutable_data_ptr<float>(),
                           room.mutable_data_ptr(), current_stream());
  return result;
}

void multiply_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, gpu::Matmul more) {
  more.m = rows_of(out);
  more.n = out.size(-1);
  more.k = more.a_transposed ? rows_of(a) : a.size(-1);
  more.a = a.const_data_ptr();
  more.b = b.const_data_ptr();
  more.out = out.mutable_data_ptr();
  more.type = type_of(a);
  more.out_type = type_of(out);
  gpu::matmul(more, current_stream());
}

at::Tensor times_weight(const at::Tensor& x, const at::Tensor& weight, gpu::Matmul more) {
  const auto out = with_last_dim(x, weight.size(0));
  more.b_transposed = true;
  multiply_into(out, x, weight, more);
  return out;
}

at::Tensor gradient_of_x(const at::Tensor& dy, const at::Tensor& weight, const gpu::Matmul& more) {
  const auto out = with_last_dim(dy, weight.size(1));
  multiply_into(out, dy, weight, more);
  return out;
}

at::Tensor gradient_of_weight(const at::Tensor& dy, const at::Tensor& x) {
  const auto out = at::empty({dy.size(-1), x.size(-1)}, x.options());
  gpu::Matmul more;
  more.a_transposed = true;
  multiply_into(out, dy, x, more);
  return out;
}

gpu::HeadStrides strides_of(const at::Tensor& x) { return {x.stride(0), x.stride(1), x.stride(2)}; }

gpu::AttentionShape attention_shape(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                    const at::Tensor& o) {
  gpu::AttentionShape shape;
  shape.batch = q.size(0);
  shape.seq = q.size(1);
  shape.heads = q.size(2);
  shape.kv_heads = k.size(2);
  shape.head_dim = q.size(3);
  shape.type = type_of(q);
  shape.q = strides_of(q);
  shape.k = strides_of(k);
  shape.v = strides_of(v);
  shape.o = strides_of(o);
  shape.deterministic = is_deterministic();
  return shape;
}

}  // namespace trireme::ops::on_gpu
