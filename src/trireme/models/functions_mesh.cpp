#include "trireme/models/functions_mesh.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/models/functions_inside.h"
#include "trireme/tensor/redistribute.h"

namespace trireme::ops::on_mesh {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

const Placement kReplicate = Placement::replicate();
const Placement kPartial = Placement::partial();

/// Placement along the only axis; a plain tensor counts as replicated.
Placement placement(const at::Tensor& x) {
  const MeshSpec* spec = x.defined() ? mesh_spec(x) : nullptr;
  return spec ? spec->layout->placements[0] : kReplicate;
}

const std::shared_ptr<DeviceMesh>& mesh_among(const at::Tensor& a, const at::Tensor& b) {
  return mesh_of(is_mesh_tensor(a) ? a : b);
}

/// This rank's part of x with placement `wanted`; `gradient` is the placement of its gradient.
at::Tensor part(const at::Tensor& x, const Placement& wanted, const Placement& gradient) {
  if (!x.defined()) return x;
  const MeshSpec* spec = mesh_spec(x);
  if (!spec) {
    if (wanted.is_replicate()) return x;
    throw Error("a plain tensor stands where a mesh tensor is meant", "call trireme::distribute on it first");
  }
  return local(spec->layout->placements[0] == wanted ? x : redistribute(x, {wanted}), {gradient});
}
at::Tensor part(const at::Tensor& x, const Placement& wanted) { return part(x, wanted, wanted); }

/// The placement of x once its partial sum is reduced and its last dim is whole.
Placement with_whole_rows(const at::Tensor& x) {
  const Placement p = placement(x);
  return p.is_shard() && p.dim != static_cast<int>(x.dim()) - 1 ? p : kReplicate;
}

std::vector<int64_t> with_last(const at::Tensor& x, int64_t size) {
  auto sizes = x.sizes().vec();
  sizes.back() = size;
  return sizes;
}

Placement home_of_sums(const DeviceMesh& mesh, const at::Tensor& y) {
  return mesh.sequence_parallel() && y.dim() == 3 ? Placement::shard(1) : kReplicate;
}

/// A parameter used by every row: if rows are sharded, its gradient is a partial sum.
at::Tensor common(const at::Tensor& weight, const Placement& rows) {
  return part(weight, kReplicate, rows.is_shard() ? kPartial : kReplicate);
}

/// Applies f to parts with the same placement; partial sums are reduced first.
template <typename Function>
at::Tensor alike(Function f, const at::Tensor& a, const at::Tensor& b = {}) {
  const Placement pa = placement(a);
  const Placement lies = pa.is_partial() ? kReplicate : pa;
  return from_local(f(part(a, lies), part(b, lies)), mesh_of(a), {lies}, a.sizes().vec());
}

/// Rows of logits with sharded classes: the maximum, then the sum and the target's logit are reduced over the axis.
class CutCrossEntropy : public torch::autograd::Function<CutCrossEntropy> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& logits, const at::Tensor& target,
                            DeviceMesh* mesh, int64_t first) {
    const int64_t classes = logits.size(-1);
    auto most = at::amax(logits, -1);
    reduce_over_axis(most, *mesh, 0, ReduceOp::kMax);
    auto power = (logits - most.unsqueeze(-1)).exp_();
    const auto here = target - first;
    const auto is_here = here.ge(0).logical_and_(here.lt(classes));
    const auto index = here.clamp(0, classes - 1).unsqueeze(-1);
    const auto wanted = at::where(is_here, logits.gather(-1, index).squeeze(-1), 0.0);
    auto sums = at::stack({power.sum(-1), wanted});
    reduce_over_axis(sums, *mesh, 0, ReduceOp::kSum);
    const auto counts = target.ne(-100);
    const auto losses = (sums[0].log() + most - sums[1]).mul_(counts);
    const auto count = counts.sum().to(at::kFloat);
    // The gradient is written over the exponentials.
    power.div_(sums[0].unsqueeze(-1));
    power.scatter_add_(-1, index, is_here.to(power.scalar_type()).neg_().unsqueeze(-1));
    power.mul_((counts / count).unsqueeze(-1));
    context->save_for_backward({power});
    return losses.sum() / count;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    demand_first_order("cross_entropy");
    return {context->get_saved_variables()[0] * gradients[0], {}, {}, {}};
  }
};

/// The loss from local logits [.., classes here], the same on every rank.
at::Tensor loss_of_parts(const at::Tensor& logits, const at::Tensor& target, const std::shared_ptr<DeviceMesh>& mesh,
                         const Placement& cut, int64_t classes) {
  const auto own = pieces(cut, classes, mesh->axis_sizes()[0], mesh->coordinates()[0]);
  if (own.size() != 1 || own[0].length == 0) {
    throw Error(fmt::format("{} classes cut as {} leave a rank without any", classes, cut.to_string()),
                "use fewer ranks along the axis");
  }
  const auto rows = logits.to(at::kFloat).flatten(0, -2);
  const auto loss = CutCrossEntropy::apply(rows, local_part(target).flatten(), mesh.get(), own[0].first);
  return from_local(loss, mesh, {kReplicate});
}

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const auto& mesh = mesh_among(weight, x);
  if (mesh->num_axes() != 1 || weight.dim() != 2 || x.dim() == 0) return plain::linear(x, weight, bias);
  const int last = static_cast<int>(x.dim()) - 1;
  const Placement cut = placement(weight);
  const auto sizes = with_last(x, weight.size(0));
  if (cut.is_shard(0)) return column_linears(x, {{weight, bias}})[0];
  if (cut.is_shard(1)) {
    const auto y = from_local(ops::linear(part(x, cut.with_dim(last)), part(weight, cut)), mesh, {kPartial}, sizes);
    const auto sum = redistribute(y, {home_of_sums(*mesh, y)});
    return bias.defined() ? sum + bias : sum;
  }
  const Placement rows = with_whole_rows(x);
  return from_local(ops::linear(part(x, rows), common(weight, rows), common(bias, rows)), mesh, {rows}, sizes);
}

std::vector<at::Tensor> linears(const at::Tensor& x, const std::vector<LinearParameters>& layers) {
  const auto& mesh = mesh_among(layers[0].weight, x);
  const bool cut_by_outputs = std::all_of(layers.begin(), layers.end(), [](const LinearParameters& layer) {
    return layer.weight.dim() == 2 && placement(layer.weight).is_shard(0);
  });
  if (mesh->num_axes() == 1 && cut_by_outputs && x.dim() > 0) return column_linears(x, layers);
  std::vector<at::Tensor> results;
  for (const LinearParameters& layer : layers) results.push_back(linear(x, layer.weight, layer.bias));
  return results;
}

at::Tensor gelu(const at::Tensor& x) {
  return alike([](const at::Tensor& a, const at::Tensor&) { return ops::gelu(a); }, x);
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  return alike([](const at::Tensor& a, const at::Tensor& b) { return ops::swiglu(a, b); }, gate, up);
}

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps) {
  const Placement rows = with_whole_rows(x);
  const auto y = ops::layer_norm(part(x, rows), common(weight, rows), common(bias, rows), eps);
  return from_local(y, mesh_of(x), {rows}, x.sizes().vec());
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const Placement rows = with_whole_rows(x);
  return from_local(ops::rms_norm(part(x, rows), common(weight, rows), eps), mesh_of(x), {rows}, x.sizes().vec());
}

at::Tensor by_heads(const at::Tensor& qkv, int64_t heads, int64_t kv_heads,
                    const std::function<at::Tensor(const at::Tensor&, int64_t, int64_t)>& f) {
  const auto& mesh = mesh_of(qkv);
  const int ranks = mesh->axis_sizes()[0], rank = mesh->coordinates()[0];
  const int last = static_cast<int>(qkv.dim()) - 1;
  const int64_t head_dim = qkv.size(-1) / (heads + 2 * kv_heads);
  if (mesh->num_axes() != 1 || heads % ranks != 0 || (kv_heads % ranks != 0 && ranks % kv_heads != 0)) {
    throw UsageError(
        fmt::format("{} heads and {} key/value heads cannot be split over {}", heads, kv_heads,
                    mesh->mesh().to_string()),
        "one axis whose ranks divide the heads; key/value heads must be a multiple or a divisor of the ranks");
  }
  const auto give = [&](const at::Tensor& out) {
    return from_local(out, mesh, {Placement::shard(last)}, with_last(qkv, heads * head_dim));
  };
  Placement packed = Placement::shard(last);
  packed.ratio = {static_cast<int16_t>(heads / kv_heads), 1, 1};
  if (heads == kv_heads) packed = Placement::shard(last, 3);
  if (kv_heads % ranks == 0) return give(f(part(qkv, packed), heads / ranks, kv_heads / ranks));
  // Several ranks use the same key head: qkv is replicated, and the ranks' gradients of it are added.
  const auto all = part(qkv, kReplicate, kPartial);
  const int64_t own = heads / ranks * head_dim, keys = (heads + rank * kv_heads / ranks) * head_dim;
  return give(f(at::cat({all.narrow(-1, rank * own, own), all.narrow(-1, keys, head_dim),
                         all.narrow(-1, keys + kv_heads * head_dim, head_dim)},
                        -1),
                heads / ranks, 1));
}

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& target) {
  const Placement cut = placement(logits);
  const auto& mesh = mesh_of(logits);
  if (cut.is_shard(static_cast<int>(logits.dim()) - 1) && mesh->num_axes() == 1) {
    return loss_of_parts(part(logits, cut), target, mesh, cut, logits.size(-1));
  }
  if (mesh->num_axes() != 1) return plain::cross_entropy(logits, target);
  return from_local(ops::cross_entropy(part(logits, kReplicate), local_part(target)), mesh, {kReplicate});
}

at::Tensor linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& target) {
  const auto& mesh = mesh_among(weight, x);
  const Placement cut = placement(weight);
  if (mesh->num_axes() != 1 || cut.is_shard(1)) return ops::cross_entropy(ops::linear(x, weight), target);
  if (cut.is_shard(0)) {
    const auto logits = column_linears(x, {{weight, {}}})[0];
    return loss_of_parts(part(logits, placement(logits)), target, mesh, cut, weight.size(0));
  }
  const auto loss = ops::linear_cross_entropy(part(x, kReplicate), part(weight, kReplicate), local_part(target));
  return from_local(loss, mesh, {kReplicate});
}

at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& table, const at::Tensor& positions) {
  const auto& mesh = mesh_of(table);
  const Placement cut = placement(table);
  at::Tensor rows;
  if (mesh->num_axes() == 1 && cut.is_shard(0) && cut.stretches == 1) {
    const Piece own = pieces(cut, table.size(0), mesh->axis_sizes()[0], mesh->coordinates()[0])[0];
    const auto here = local_part(tokens) - own.first;
    const auto outside = here.lt(0).logical_or_(here.ge(own.length)).unsqueeze(-1);
    const auto found = at::embedding(part(table, cut), here.clamp(0, std::max<int64_t>(own.length - 1, 0)));
    auto sizes = tokens.sizes().vec();
    sizes.push_back(table.size(1));
    const auto sum = from_local(found.masked_fill(outside, 0), mesh, {kPartial}, sizes);
    rows = redistribute(sum, {home_of_sums(*mesh, sum)});
  } else {
    rows = at::embedding(table, tokens);
  }
  return positions.defined() ? rows + positions.narrow(0, 0, tokens.size(-1)) : rows;
}

}  // namespace trireme::ops::on_mesh
