// Norms, SwiGLU, rotary positions, attention, embedding and the loss on our GPU kernels, each an autograd node.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "trireme/gpu/kernels/norm.h"
#include "trireme/gpu/kernels/pointwise.h"
#include "trireme/gpu/kernels/tokens.h"
#include "trireme/models/cuda/inside.h"
#include "trireme/models/functions_inside.h"

namespace trireme::ops::on_gpu {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class LayerNormFunction : public torch::autograd::Function<LayerNormFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& scale,
                            const at::Tensor& shift, double eps) {
    const Normed norm = apply_layer_norm(x, scale, shift, eps);
    context->save_for_backward({x, scale, norm.mean, norm.rstd});
    return norm.y;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    demand_first_order("layer_norm");
    const auto saved = context->get_saved_variables();
    const NormGradients d = layer_norm_backward(packed(gradients[0]), saved[0], saved[1], saved[2], saved[3], {});
    return {d.dx, d.d_scale, d.d_shift, {}};
  }
};

class RmsNormFunction : public torch::autograd::Function<RmsNormFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& scale, double eps) {
    const gpu::NormShape shape = shape_of(x);
    const auto y = at::empty_like(x), rstd = at::empty({shape.rows}, x.options().dtype(at::kFloat));
    gpu::rms_norm(shape, x.const_data_ptr(), scale.const_data_ptr<float>(), static_cast<float>(eps),
                  y.mutable_data_ptr(), rstd.mutable_data_ptr<float>(), current_stream());
    context->save_for_backward({x, scale, rstd});
    return y;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    demand_first_order("rms_norm");
    const auto saved = context->get_saved_variables();
    const auto& x = saved[0];
    const auto dy = packed(gradients[0]), dx = at::empty_like(x), d_scale = at::empty_like(saved[1]);
    const gpu::NormShape shape = shape_of(x);
    const auto room = scratch(gpu::norm_backward_scratch(shape), x);
    gpu::rms_norm_backward(shape, dy.const_data_ptr(), x.const_data_ptr(), saved[1].const_data_ptr<float>(),
                           saved[2].const_data_ptr<float>(), nullptr, dx.mutable_data_ptr(),
                           d_scale.mutable_data_ptr<float>(), room.mutable_data_ptr(), current_stream());
    return {dx, d_scale, {}};
  }

 private:
  static gpu::NormShape shape_of(const at::Tensor& x) { return {rows_of(x), x.size(-1), type_of(x)}; }
};

class SwigluFunction : public torch::autograd::Function<SwigluFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate, const at::Tensor& up) {
    context->save_for_backward({gate, up});
    const auto y = at::empty_like(gate);
    gpu::swiglu(shape_of(gate), gate.const_data_ptr(), up.const_data_ptr(), y.mutable_data_ptr(), current_stream());
    return y;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    demand_first_order("swiglu");
    const auto saved = context->get_saved_variables();
    const auto dy = packed(gradients[0]), d_gate = at::empty_like(dy), d_up = at::empty_like(dy);
    gpu::swiglu_backward(shape_of(dy), saved[0].const_data_ptr(), saved[1].const_data_ptr(), dy.const_data_ptr(),
                         d_gate.mutable_data_ptr(), d_up.mutable_data_ptr(), current_stream());
    return {d_gate, d_up};
  }

 private:
  static gpu::SwigluShape shape_of(const at::Tensor& x) { return {rows_of(x), x.size(-1), x.size(-1), type_of(x)}; }
};

class DropoutFunction : public torch::autograd::Function<DropoutFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const gpu::DropoutMask& mask) {
    auto kept = c10::make_intrusive<Kept>();
    kept->mask = mask;
    context->saved_data["kept"] = c10::IValue::make_capsule(std::move(kept));
    return masked(x, mask);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    demand_first_order("dropout");
    const auto kept = c10::static_intrusive_pointer_cast<Kept>(context->saved_data["kept"].toCapsule());
    return {masked(packed(gradients[0]), kept->mask), {}};
  }

 private:
  struct Kept : torch::CustomClassHolder {
    gpu::DropoutMask mask;
  };
  static at::Tensor masked(const at::Tensor& x, const gpu::DropoutMask& mask) {
    const auto y = at::empty_like(x);
    gpu::dropout(x.const_data_ptr(), y.mutable_data_ptr(), x.numel(), mask, type_of(x), current_stream());
    return y;
  }
};

class RotateFunction : public torch::autograd::Function<RotateFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& cosine,
                            const at::Tensor& sine) {
    context->save_for_backward({cosine, sine});
    return turned(x, cosine, sine, false);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    demand_first_order("rotate");
    const auto saved = context->get_saved_variables();
    return {turned(gradients[0], saved[0], saved[1], true), {}, {}};
  }

 private:
  static at::Tensor turned(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine, bool back) {
    const auto y = x.clone(at::MemoryFormat::Contiguous);
    const gpu::RotaryShape shape{y.size(0) * y.size(1), y.size(1), y.size(2), y.size(3),
                                 y.size(2) * y.size(3), type_of(y)};
    gpu::rotate(shape, y.mutable_data_ptr(), cosine.const_data_ptr<float>(), sine.const_data_ptr<float>(), back,
                current_stream());
    return y;
  }
};

class AttentionFunction : public torch::autograd::Function<AttentionFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    const auto o = at::empty(q.sizes(), q.options());
    const auto log_sums = at::empty({q.size(0), q.size(2), q.size(1)}, q.options().dtype(at::kFloat));
    at::Tensor room;
    gpu::attention(
        attention_shape(q, k, v, o), q.const_data_ptr(), k.const_data_ptr(), v.const_data_ptr(), o.mutable_data_ptr(),
        log_sums.mutable_data_ptr<float>(),
        [&](size_t num_bytes) { return (room = scratch(num_bytes, q)).mutable_data_ptr(); }, current_stream());
    context->save_for_backward({q, k, v, o, log_sums});
    return o.flatten(2);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    demand_first_order("causal_attention");
    const auto saved = context->get_saved_variables();
    const auto &q = saved[0], &k = saved[1], &v = saved[2], &o = saved[3];
    const auto d_o = packed(gradients[0]).view(q.sizes());
    const auto dq = at::empty(q.sizes(), q.options()), dk = at::empty(k.sizes(), k.options()),
               dv = at::empty(v.sizes(), v.options());
    gpu::AttentionShape shape = attention_shape(q, k, v, o);
    shape.dq = strides_of(dq);
    shape.dk = strides_of(dk);
    shape.dv = strides_of(dv);
    shape.d_o = strides_of(d_o);
    at::Tensor room;
    gpu::attention_backward(
        shape, q.const_data_ptr(), k.const_data_ptr(), v.const_data_ptr(), o.const_data_ptr(), d_o.const_data_ptr(),
        saved[4].const_data_ptr<float>(), dq.mutable_data_ptr(), dk.mutable_data_ptr(), dv.mutable_data_ptr(),
        [&](size_t num_bytes) { return (room = scratch(num_bytes, q)).mutable_data_ptr(); }, current_stream());
    return {dq, dk, dv};
  }
};

class EmbeddingFunction : public torch::autograd::Function<EmbeddingFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tokens, const at::Tensor& table,
                            const std::optional<at::Tensor>& positions) {
    const gpu::EmbeddingShape shape = shape_of(tokens, table);
    auto sizes = tokens.sizes().vec();
    sizes.push_back(table.size(1));
    const auto y = at::empty(sizes, table.options());
    gpu::embedding(shape, tokens.const_data_ptr<int64_t>(), table.const_data_ptr(),
                   positions ? positions->const_data_ptr() : nullptr, y.mutable_data_ptr(), current_stream());
    context->save_for_backward({tokens});
    context->saved_data["vocab"] = table.size(0);
    context->saved_data["num_positions"] = positions ? positions->size(0) : int64_t{-1};
    return y;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    demand_first_order("embedding");
    const auto tokens = context->get_saved_variables()[0], dy = packed(gradients[0]);
    const int64_t vocab = context->saved_data["vocab"].toInt();
    const int64_t num_positions = context->saved_data["num_positions"].toInt();
    const auto d_table = at::empty({vocab, dy.size(-1)}, dy.options());
    const gpu::EmbeddingShape shape = shape_of(tokens, d_table);
    at::Tensor d_positions;
    if (num_positions >= 0) {
      d_positions = at::empty({num_positions, dy.size(-1)}, dy.options());
      if (num_positions > shape.seq) d_positions.narrow(0, shape.seq, num_positions - shape.seq).zero_();
    }
    const auto room = scratch(gpu::embedding_backward_scratch(shape), dy);
    gpu::embedding_backward(shape, tokens.const_data_ptr<int64_t>(), dy.const_data_ptr(), d_table.mutable_data_ptr(),
                            d_positions.defined() ? d_positions.mutable_data_ptr() : nullptr, room.mutable_data_ptr(),
                            current_stream());
    return {{}, d_table, d_positions};
  }

 private:
  static gpu::EmbeddingShape shape_of(const at::Tensor& tokens, const at::Tensor& table) {
    return {tokens.numel(), tokens.size(-1), table.size(1), table.size(0), type_of(table)};
  }
};

/// The forward also computes both gradients, for a loss that sums over rows: only then are the logits available, a
/// chunk of rows at a time. The backward multiplies them by the gradient of the loss over the number of rows.
class LinearCrossEntropyFunction : public torch::autograd::Function<LinearCrossEntropyFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& given,
                            const at::Tensor& target, bool wants_gradients) {
    const at::Tensor weight = padded(given);
    const int64_t width = x.size(-1), rows = rows_of(x), classes = given.size(0), row = weight.size(0);
    const auto floats = x.options().dtype(at::kFloat);
    const auto losses = at::empty({rows}, floats), flat = x.view({rows, width}), wanted = target.flatten();
    at::Tensor dx, d_weight;
    if (wants_gradients) {
      dx = at::empty_like(flat);
      d_weight = at::empty(weight.sizes(), floats);
    }
    const int64_t most = std::max<int64_t>(1, kLogitsBytes / (row * static_cast<int64_t>(x.element_size())));
    const int64_t num_parts = (rows + most - 1) / most, part = (rows + num_parts - 1) / num_parts;
    for (int64_t first = 0; first < rows; first += part) {
      const int64_t count = std::min(part, rows - first);
      const auto logits = times_weight(flat.narrow(0, first, count), weight);
      gpu::cross_entropy({count, classes, row, type_of(x)}, logits.mutable_data_ptr(),
                         wanted.const_data_ptr<int64_t>() + first, 1, wants_gradients,
                         losses.mutable_data_ptr<float>() + first, current_stream());
      if (wants_gradients) {
        differentiate(logits, flat.narrow(0, first, count), weight, dx.narrow(0, first, count), d_weight, first > 0);
      }
    }
    const auto num_counted = wanted.ne(kIgnored).sum().to(at::kFloat);
    const auto sum = at::empty({}, floats);
    gpu::sum_all(losses.const_data_ptr<float>(), rows, 1, sum.mutable_data_ptr<float>(), current_stream());
    if (wants_gradients) {
      context->save_for_backward({dx.view(x.sizes()), d_weight.narrow(0, 0, classes), num_counted});
    }
    return sum / num_counted;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    demand_first_order("linear_cross_entropy");
    const auto saved = context->get_saved_variables();
    const auto& dx = saved[0];
    const auto factor = gradients[0] / saved[2];
    const auto d_weight = at::empty(saved[1].sizes(), dx.options());
    at::mul_out(const_cast<at::Tensor&>(d_weight), saved[1], factor);
    return {dx * factor.to(dx.scalar_type()), d_weight, {}, {}};
  }

 private:
  static constexpr int64_t kIgnored = -100;
  static constexpr int64_t kLogitsBytes = int64_t{2} << 30;

  /// Rows of logits that are not aligned to 16 bytes, such as those of 50,257 classes, make the matmuls twice as slow:
  /// so rows of zeros are added to the weights. Their logits are 0 and belong to no class.
  static at::Tensor padded(const at::Tensor& weight) {
    constexpr int64_t kAligned = 8, kWhole = 64;
    const int64_t classes = weight.size(0);
    if (classes % kAligned == 0) return weight;
    const auto all = at::zeros({(classes + kWhole - 1) / kWhole * kWhole, weight.size(1)}, weight.options());
    all.narrow(0, 0, classes).copy_(weight);
    return all;
  }

  static void differentiate(const at::Tensor& d_logits, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& dx, const at::Tensor& d_weight, bool add) {
    multiply_into(dx, d_logits, weight);
    gpu::Matmul more;
    more.a_transposed = true;
    if (add) more.add = d_weight.const_data_ptr();
    multiply_into(d_weight, d_logits, x, more);
  }
};

bool is_float_vector(const at::Tensor& x) { return x.defined() && x.scalar_type() == at::kFloat && x.is_contiguous(); }

}  // namespace

at::Tensor layer_norm(const at::Tensor& x, const NormParameters& norm) {
  if (!is_float_vector(norm.scale) || !is_float_vector(norm.shift)) return {};
  return LayerNormFunction::apply(packed(x), norm.scale, norm.shift, norm.eps);
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& scale, double eps) {
  return is_float_vector(scale) ? RmsNormFunction::apply(packed(x), scale, eps) : at::Tensor();
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  return SwigluFunction::apply(packed(gate), packed(up));
}

at::Tensor dropout(const at::Tensor& x, const Philox& numbers, uint64_t first, double p) {
  gpu::DropoutMask mask;
  mask.key[0] = numbers.key()[0];
  mask.key[1] = numbers.key()[1];
  mask.step = numbers.step();
  mask.first = first;
  mask.p = static_cast<float>(p);
  mask.kept = static_cast<float>(1 / (1 - p));
  return DropoutFunction::apply(packed(x), mask);
}

at::Tensor rotate(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine) {
  return RotateFunction::apply(x, cosine.to(at::kFloat).contiguous(), sine.to(at::kFloat).contiguous());
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const auto rows = [](const at::Tensor& x) {
    return x.stride(-1) == 1 && x.stride(1) % 8 == 0 && x.stride(2) % 8 == 0 ? x : x.contiguous();
  };
  const auto own_q = rows(q), own_k = rows(k), own_v = rows(v);
  if (!gpu::attention_serves(attention_shape(own_q, own_k, own_v, own_q))) return {};
  return AttentionFunction::apply(own_q, own_k, own_v);
}

at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& table, const at::Tensor& positions) {
  return EmbeddingFunction::apply(tokens.contiguous(), table,
                                  positions.defined() ? std::optional(positions) : std::nullopt);
}

at::Tensor linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& target) {
  if (weight.scalar_type() != x.scalar_type()) return {};
  return LinearCrossEntropyFunction::apply(packed(x), weight, target, wants_gradient({x, weight}));
}

}  // namespace trireme::ops::on_gpu
