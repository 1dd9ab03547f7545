// Column-parallel linear layers: the backward overlaps its sum over the ranks with a matmul.
//
//   forward    y = x · Wᵀ            x replicated, W and y sharded
//   backward   dx = Σ dy · W ──────▶ summed over the ranks ──────▶ needed by the previous layer
//              dW = dyᵀ · x                 meanwhile
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/models/functions_inside.h"
#include "trireme/models/functions_mesh.h"
#include "trireme/tensor/redistribute.h"

namespace trireme::ops::on_mesh {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// What the backward needs besides tensors.
struct Facts : torch::CustomClassHolder {
  std::shared_ptr<DeviceMesh> mesh;
  std::vector<int64_t> x_sizes;
  const MeshLayout* x_home = nullptr;  ///< layout of the gradient of x
  at::ScalarType x_type = at::kFloat;
  bool x_is_plain = false;
  bool ours = false;  ///< matmuls use our kernels
  struct Layer {
    const MeshLayout *weight = nullptr, *y = nullptr;
    std::vector<int64_t> weight_sizes, y_sizes;
    at::ScalarType weight_type = at::kFloat;
    bool has_bias = false;
  };
  std::vector<Layer> layers;
};

at::Tensor part_in(const at::Tensor& tensor, DeviceMesh& mesh, const MeshLayout& layout, c10::IntArrayRef sizes) {
  const MeshSpec* spec = mesh_spec(tensor);
  return redistribute_local(local_part(tensor), mesh, spec ? *spec->layout : *mesh.replicated(), layout, sizes);
}

/// Casts to the autocast dtype: autocast does not reach what a Function saves.
at::Tensor as_computed(const at::Tensor& tensor) {
  const auto device = tensor.device().type();
  const bool casts = tensor.is_floating_point() && at::autocast::is_autocast_enabled(device);
  return casts ? tensor.to(at::autocast::get_autocast_dtype(device)) : tensor;
}

class ColumnLinears : public torch::autograd::Function<ColumnLinears> {
 public:
  /// `parameters`: weight, or weight and bias, of each layer in turn.
  static variable_list forward(AutogradContext* context, const at::Tensor& x, at::TensorList parameters,
                               c10::intrusive_ptr<Facts> facts) {
    const auto whole = as_computed(part_in(x, *facts->mesh, *facts->mesh->replicated(), x.sizes())).contiguous();
    variable_list saved = {whole}, results;
    size_t at = 0;
    for (const Facts::Layer& layer : facts->layers) {
      const auto weight = as_computed(local_part(parameters[at++])).contiguous();
      const auto bias = layer.has_bias ? as_computed(local_part(parameters[at++])) : at::Tensor();
      facts->ours = linear_is_ours(whole, weight, bias);
      results.push_back(wrap_local(ops::linear(whole, weight, bias), facts->mesh, layer.y, layer.y_sizes));
      saved.push_back(weight);
    }
    context->save_for_backward(std::move(saved));
    context->saved_data["facts"] = c10::IValue::make_capsule(facts);
    return results;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    demand_first_order("linear");
    const auto saved = context->get_saved_variables();
    const auto facts = c10::static_intrusive_pointer_cast<Facts>(context->saved_data["facts"].toCapsule());
    DeviceMesh& mesh = *facts->mesh;
    variable_list dys;
    for (size_t i = 0; i < gradients.size(); ++i) {
      const Facts::Layer& layer = facts->layers[i];
      const bool is_there = gradients[i].defined();
      dys.push_back(is_there ? part_in(gradients[i], mesh, *layer.y, layer.y_sizes).contiguous() : at::Tensor());
    }
    variable_list result(1);
    if (context->needs_input_grad(0)) result[0] = start_sum(dys, saved, *facts);
    size_t edge = 1;
    for (size_t i = 0; i < dys.size(); ++i) {
      const Facts::Layer& layer = facts->layers[i];
      const auto give = [&](const at::Tensor& part, c10::IntArrayRef sizes) {
        result.push_back(
            wrap_local(part.defined() ? part.to(layer.weight_type) : part, facts->mesh, layer.weight, sizes));
      };
      const auto wanted = [&] { return context->needs_input_grad(edge++) && dys[i].defined(); };
      give(wanted() ? linear_weight_gradient(dys[i], saved[0], facts->ours) : at::Tensor(), layer.weight_sizes);
      if (!layer.has_bias) continue;
      give(wanted() ? linear_bias_gradient(dys[i], facts->ours) : at::Tensor(), {layer.weight_sizes[0]});
    }
    result.emplace_back();  // for `facts`
    return result;
  }

 private:
  /// Computes the gradient of x and starts its reduction to the layout of x.
  static at::Tensor start_sum(const variable_list& dys, const variable_list& saved, const Facts& facts) {
    at::Tensor dx;
    for (size_t i = 0; i < dys.size(); ++i) {
      if (!dys[i].defined()) continue;
      const auto part = linear_input_gradient(dys[i], saved[i + 1], facts.ours).to(facts.x_type);
      dx = dx.defined() ? dx.add_(part) : part;
    }
    if (!dx.defined()) return dx;
    const MeshLayout* partial = facts.mesh->layout({Placement::partial()}, facts.x_sizes);
    const auto sum = wrap_started(start_redistribute_local(dx, *facts.mesh, *partial, *facts.x_home, facts.x_sizes),
                                  facts.mesh, facts.x_home, facts.x_sizes);
    return facts.x_is_plain ? local_part(sum) : sum;
  }
};

}  // namespace

std::vector<at::Tensor> column_linears(const at::Tensor& x, const std::vector<LinearParameters>& layers) {
  auto facts = c10::make_intrusive<Facts>();
  const MeshSpec* spec = mesh_spec(x);
  facts->mesh = mesh_of(layers[0].weight);
  facts->x_sizes = x.sizes().vec();
  facts->x_type = x.scalar_type();
  facts->x_is_plain = spec == nullptr;
  const bool keeps_layout = spec && spec->layout->placements[0].is_shard();
  facts->x_home = keeps_layout ? spec->layout : facts->mesh->replicated();
  variable_list parameters;
  for (const LinearParameters& each : layers) {
    Facts::Layer layer;
    layer.weight = mesh_spec(each.weight)->layout;
    layer.weight_sizes = each.weight.sizes().vec();
    layer.weight_type = each.weight.scalar_type();
    layer.y_sizes = facts->x_sizes;
    layer.y_sizes.back() = each.weight.size(0);
    const int last = static_cast<int>(x.dim()) - 1;
    layer.y = facts->mesh->layout({layer.weight->placements[0].with_dim(last)}, layer.y_sizes);
    layer.has_bias = each.bias.defined();
    parameters.push_back(each.weight);
    if (layer.has_bias) parameters.push_back(redistribute(each.bias, layer.weight->placements));
    facts->layers.push_back(std::move(layer));
  }
  return ColumnLinears::apply(x, at::TensorList(parameters), facts);
}

}  // namespace trireme::ops::on_mesh
