// The operators of models/functions.h on mesh tensors of one axis: tensor and sequence parallelism.
//
// Where the layouts allow it, each computes with the same kernels on local parts, so that a rank's work is what one
// process would do on a narrower model; what moves is stated with each. Other layouts and meshes of more axes go
// through libtorch's operators, which follow the rules of layout/.
#pragma once

#include "trireme/models/functions.h"
#include "trireme/tensor/mesh_tensor.h"

namespace trireme::ops::on_mesh {

/// Some of them is a mesh tensor.
inline bool serves(std::initializer_list<at::Tensor> tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && is_mesh_tensor(tensor)) return true;
  }
  return false;
}

/// Weights cut by outputs (column): the input is gathered where it was cut, the result is cut. Cut by inputs (row): the
/// parts of the result are summed, to every rank or along the sequence. Whole: as the input lies.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);
/// Several of one input.
std::vector<at::Tensor> linears(const at::Tensor& x, const std::vector<LinearParameters>& layers);
/// Those whose weights are cut by outputs, on a mesh of one axis. The sum of the input's gradient over the ranks goes
/// on while the gradients of the weights are made: [Note: In flight].
std::vector<at::Tensor> column_linears(const at::Tensor& x, const std::vector<LinearParameters>& layers);
/// Nothing moves in these but sums that were not finished.
at::Tensor gelu(const at::Tensor& x);
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps);
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);
/// Packed queries, keys and values that are cut by heads, or whole: then each rank takes its heads of them. Nothing
/// moves.
at::Tensor by_heads(const at::Tensor& qkv, int64_t heads, int64_t kv_heads,
                    const std::function<at::Tensor(const at::Tensor&, int64_t, int64_t)>& f);
/// With the classes cut, three numbers a row are exchanged.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& target);
at::Tensor linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& target);
/// With the rows of the table cut, the results are summed.
at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& table, const at::Tensor& positions);

}  // namespace trireme::ops::on_mesh
