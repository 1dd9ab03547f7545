// The operators of models/functions.h on mesh tensors of one axis: tensor and sequence parallelism.
//
// Where layouts allow it, each runs the same kernels on local parts, so a rank does what one process would do on a
// narrower model; the communication of each is stated below. Other layouts, and meshes of several axes, use libtorch's
// operators, which follow the rules of layout/.
#pragma once

#include "trireme/models/functions.h"
#include "trireme/tensor/mesh_tensor.h"

namespace trireme::ops::on_mesh {

/// Whether any of them is a mesh tensor.
inline bool serves(std::initializer_list<at::Tensor> tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && is_mesh_tensor(tensor)) return true;
  }
  return false;
}

/// Weight sharded by outputs (column-parallel): a sharded input is gathered, the result is sharded. Sharded by inputs
/// (row-parallel): partial results are reduced, to every rank or scattered along the sequence. Replicated: the result
/// is placed like the input.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);
/// Several linear layers of the same input.
std::vector<at::Tensor> linears(const at::Tensor& x, const std::vector<LinearParameters>& layers);
/// Column-parallel layers on a mesh of one axis. The input's gradient is summed over the ranks while the weights'
/// gradients are computed: [Note: In flight].
std::vector<at::Tensor> column_linears(const at::Tensor& x, const std::vector<LinearParameters>& layers);
/// Communicate only to finish partial sums.
at::Tensor gelu(const at::Tensor& x);
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps);
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);
/// Packed queries, keys and values, sharded by heads, or replicated: then each rank takes its heads. No communication.
at::Tensor by_heads(const at::Tensor& qkv, int64_t heads, int64_t kv_heads,
                    const std::function<at::Tensor(const at::Tensor&, int64_t, int64_t)>& f);
/// With sharded classes, three numbers per row are exchanged.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& target);
at::Tensor linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& target);
/// With a table sharded by rows, the results are summed.
at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& table, const at::Tensor& positions);

}  // namespace trireme::ops::on_mesh
