// Causal attention on our kernels: reads queries, keys and values in place, and writes gradients in place.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "trireme/models/functions.h"
#include "trireme/models/functions_gpu.h"
#include "trireme/models/functions_inside.h"
#include "trireme/models/functions_mesh.h"
#include "trireme/models/kernels/multiply.h"

namespace trireme::ops {
namespace {

using model_kernels::AttentionShape;
using model_kernels::Heads;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Views [batch, seq, heads, head_dim], whose last dim is contiguous.
struct Parts {
  at::Tensor q, k, v;
};

Parts split_heads(const at::Tensor& qkv, int64_t heads, int64_t kv_heads) {
  const auto all = qkv.unflatten(-1, {heads + 2 * kv_heads, qkv.size(-1) / (heads + 2 * kv_heads)});
  const auto parts = all.split_with_sizes({heads, kv_heads, kv_heads}, 2);
  return {parts[0], parts[1], parts[2]};
}

at::Tensor with_contiguous_rows(const at::Tensor& x) { return x.stride(-1) == 1 ? x : x.contiguous(); }

AttentionShape shape_of(const Parts& x, const at::Tensor& o) {
  return {x.q.size(1),   x.q.size(3), x.q.size(2) / x.k.size(2),
          x.q.stride(2), o.stride(2), static_cast<float>(1 / std::sqrt(static_cast<double>(x.q.size(3))))};
}

/// One head of one sample. Inputs are only read, although Heads allows writing.
Heads heads_at(const at::Tensor& x, int64_t sample, int64_t head) {
  return {const_cast<float*>(x.const_data_ptr<float>()) + sample * x.stride(0) + head * x.stride(2), x.stride(1)};
}

/// Calls body(sample, key head, scratch) for each, on libtorch's threads.
template <typename Body>
void for_key_heads(const Parts& x, int64_t scratch_floats, Body body) {
  const int64_t kv_heads = x.k.size(2);
  at::parallel_for(0, x.q.size(0) * kv_heads, 1, [&](int64_t first, int64_t end) {
    float* const scratch = model_kernels::scratch(model_kernels::ScratchSlot::kAttention, scratch_floats);
    for (int64_t i = first; i < end; ++i) body(i / kv_heads, i % kv_heads, scratch);
  });
}

struct Output {
  at::Tensor o;         // [batch, seq, heads, head_dim]
  at::Tensor log_sums;  // [batch, heads, seq]
};

Output forward_attention(const Parts& x) {
  const auto& kernels = *model_kernels::best();
  const int64_t batch = x.q.size(0), seq = x.q.size(1), heads = x.q.size(2);
  Output out{at::empty(x.q.sizes(), x.q.options()), at::empty({batch, heads, seq}, x.q.options())};
  const AttentionShape shape = shape_of(x, out.o);
  float* const log_sums = out.log_sums.mutable_data_ptr<float>();
  for_key_heads(x, kernels.attention_scratch(shape), [&](int64_t sample, int64_t head, float* scratch) {
    const int64_t first = head * shape.uses;
    kernels.attention(shape, heads_at(x.q, sample, first), heads_at(x.k, sample, head), heads_at(x.v, sample, head),
                      heads_at(out.o, sample, first), log_sums + (sample * heads + first) * seq, scratch);
  });
  return out;
}

/// Writes the gradients into `d`, which has its own strides.
void backward_attention(const Parts& x, const Output& out, const at::Tensor& d_o, const Parts& d) {
  const auto& kernels = *model_kernels::best();
  const int64_t seq = x.q.size(1), heads = x.q.size(2);
  AttentionShape shape = shape_of(x, out.o);
  shape.dq_head = d.q.stride(2);
  const float* const log_sums = out.log_sums.const_data_ptr<float>();
  for_key_heads(x, kernels.attention_backward_scratch(shape), [&](int64_t sample, int64_t head, float* scratch) {
    const int64_t first = head * shape.uses;
    kernels.attention_backward(
        shape, heads_at(x.q, sample, first), heads_at(x.k, sample, head), heads_at(x.v, sample, head),
        heads_at(out.o, sample, first), heads_at(d_o, sample, first), log_sums + (sample * heads + first) * seq,
        heads_at(d.q, sample, first), heads_at(d.k, sample, head), heads_at(d.v, sample, head), scratch);
  });
}

class AttentionFunction : public torch::autograd::Function<AttentionFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    const auto out = forward_attention({q, k, v});
    context->save_for_backward({q, k, v, out.o, out.log_sums});
    return out.o.view({q.size(0), q.size(1), -1});
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    demand_first_order("causal_attention");
    const auto saved = context->get_saved_variables();
    const Parts x{saved[0], saved[1], saved[2]};
    const Parts d{at::empty(x.q.sizes(), x.q.options()), at::empty(x.k.sizes(), x.k.options()),
                  at::empty(x.v.sizes(), x.v.options())};
    backward_attention(x, {saved[3], saved[4]}, gradients[0].contiguous().view(x.q.sizes()), d);
    return {d.q, d.k, d.v};
  }
};

class PackedAttentionFunction : public torch::autograd::Function<PackedAttentionFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& qkv, int64_t heads, int64_t kv_heads) {
    const auto out = forward_attention(split_heads(qkv, heads, kv_heads));
    context->save_for_backward({qkv, out.o, out.log_sums});
    context->saved_data["heads"] = heads;
    context->saved_data["kv_heads"] = kv_heads;
    return out.o.view({qkv.size(0), qkv.size(1), -1});
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    demand_first_order("causal_attention");
    const auto saved = context->get_saved_variables();
    const int64_t heads = context->saved_data["heads"].toInt(), kv_heads = context->saved_data["kv_heads"].toInt();
    const auto d = at::empty(saved[0].sizes(), saved[0].options());
    const Parts x = split_heads(saved[0], heads, kv_heads);
    backward_attention(x, {saved[1], saved[2]}, gradients[0].contiguous().view(x.q.sizes()),
                       split_heads(d, heads, kv_heads));
    return {d, {}, {}};
  }
};

}  // namespace

at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  if (on_gpu::serves(q)) {
    if (const auto o = on_gpu::attention(q, k, v); o.defined()) return o;
  }
  if (!kernels_for({q, k, v})) return plain::causal_attention(q, k, v);
  const Parts x{with_contiguous_rows(q), with_contiguous_rows(k), with_contiguous_rows(v)};
  if (wants_gradient({q, k, v})) return AttentionFunction::apply(x.q, x.k, x.v);
  return forward_attention(x).o.flatten(2);
}

at::Tensor causal_attention(const at::Tensor& qkv, int64_t heads, int64_t kv_heads) {
  if (on_mesh::serves({qkv})) {
    return on_mesh::by_heads(qkv, heads, kv_heads, [](const at::Tensor& x, int64_t own, int64_t own_kv) {
      return ops::causal_attention(x, own, own_kv);
    });
  }
  if (!kernels_for({qkv})) {
    const Parts x = split_heads(qkv, heads, kv_heads);
    return causal_attention(x.q, x.k, x.v);
  }
  const auto ours = with_contiguous_rows(qkv);
  if (wants_gradient({qkv})) return PackedAttentionFunction::apply(ours, heads, kv_heads);
  return forward_attention(split_heads(ours, heads, kv_heads)).o.flatten(2);
}

}  // namespace trireme::ops
