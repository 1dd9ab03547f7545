// Attention of packed queries, keys and values; its gradients are packed the same way.
#include <ATen/ops/empty.h>

#include "trireme/models/cuda/inside.h"

namespace trireme::ops::on_gpu {
namespace {

/// Queries, keys and values of a packed tensor, as views [batch, seq, heads, head_dim].
struct Parts {
  at::Tensor q, k, v;
  Parts(const at::Tensor& qkv, int64_t heads) {
    const auto parts = qkv.unflatten(-1, {3, heads, -1}).unbind(2);
    q = parts[0];
    k = parts[1];
    v = parts[2];
  }
};

gpu::AttentionShape shape_of(const Parts& parts, const at::Tensor& o, int64_t heads) {
  return attention_shape(parts.q, parts.k, parts.v, o.unflatten(-1, {heads, -1}));
}

}  // namespace

Attended attend(const at::Tensor& qkv, int64_t heads) {
  const int64_t batch = qkv.size(0), seq = qkv.size(1);
  Attended result{at::empty({batch, seq, qkv.size(-1) / 3}, qkv.options()),
                  at::empty({batch, heads, seq}, qkv.options().dtype(at::kFloat))};
  const Parts parts(qkv, heads);
  at::Tensor room;
  gpu::attention(
      shape_of(parts, result.o, heads), parts.q.const_data_ptr(), parts.k.const_data_ptr(), parts.v.const_data_ptr(),
      result.o.mutable_data_ptr(), result.log_sums.mutable_data_ptr<float>(),
      [&](size_t num_bytes) { return (room = scratch(num_bytes, qkv)).mutable_data_ptr(); }, current_stream());
  return result;
}

at::Tensor attend_backward(const at::Tensor& qkv, const Attended& attended, const at::Tensor& d_o, int64_t heads) {
  const auto d_qkv = at::empty(qkv.sizes(), qkv.options());
  const Parts parts(qkv, heads), d(d_qkv, heads);
  gpu::AttentionShape shape = shape_of(parts, attended.o, heads);
  shape.dq = strides_of(d.q);
  shape.dk = strides_of(d.k);
  shape.dv = strides_of(d.v);
  shape.d_o = shape.o;
  at::Tensor room;
  gpu::attention_backward(
      shape, parts.q.const_data_ptr(), parts.k.const_data_ptr(), parts.v.const_data_ptr(), attended.o.const_data_ptr(),
      d_o.const_data_ptr(), attended.log_sums.const_data_ptr<float>(), d.q.mutable_data_ptr(), d.k.mutable_data_ptr(),
      d.v.mutable_data_ptr(), [&](size_t num_bytes) { return (room = scratch(num_bytes, qkv)).mutable_data_ptr(); },
      current_stream());
  return d_qkv;
}

}  // namespace trireme::ops::on_gpu
