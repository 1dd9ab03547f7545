// Mesh tensors: libtorch tensors distributed over the ranks of a mesh that behave as one tensor.
//
// A mesh tensor has the global sizes; each rank holds its part of the elements. torch::nn modules, optimizers and
// functions take mesh tensors like any others: operators run on the parts, and communicate where they must
// (docs/mesh_tensors.md). All ranks of the mesh must call the same operators in the same order.
//
// [Note: Mesh tensor]
// The outer tensor is a c10::TensorImpl with the global sizes, a storage without bytes whose data_ptr() throws, the
// local tensor's keys and DispatchKey::Fake, and a MeshSpec as its backend meta. Autograd sees the outer tensor; below
// autograd, the fallback of Fake (dispatch.cpp) sees every operator. Specs never change, so tensors that share one
// through shallow copies cannot corrupt each other. Outer strides follow the local ones if all ranks hold equally many
// elements; otherwise they are contiguous, because parts with one element or none have other strides, autograd's
// formulas read strides, and ranks must not see different ones.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "trireme/tensor/device_mesh.h"
#include "trireme/tensor/in_flight.h"

namespace trireme {

/// The contents of a mesh tensor: local part, mesh and layout.
struct MeshSpec : c10::BackendMeta {
  MeshSpec(at::Tensor local, std::shared_ptr<DeviceMesh> on, const MeshLayout* lies,
           std::shared_ptr<InFlight> under_way = nullptr)
      : mesh(std::move(on)), layout(lies), local_(std::move(local)), flight_(std::move(under_way)) {}

  /// This rank's part. Waits for a collective that is still filling it.
  const at::Tensor& local() const {
    if (flight_) [[unlikely]]
      land();
    return local_;
  }

  const std::shared_ptr<DeviceMesh> mesh;
  const MeshLayout* const layout;

 private:
  void land() const;

  const at::Tensor local_;
  mutable std::shared_ptr<InFlight> flight_;  ///< null: the part is complete
};

/// Null for a plain tensor.
inline const MeshSpec* mesh_spec(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!impl->key_set().has(c10::DispatchKey::Fake)) return nullptr;
  return static_cast<const MeshSpec*>(const_cast<c10::TensorImpl*>(impl)->get_backend_meta());
}
inline bool is_mesh_tensor(const at::Tensor& tensor) { return mesh_spec(tensor) != nullptr; }

/// Copies this rank's part out of `tensor`, which is whole and the same on all ranks. Returns a leaf without gradient.
at::Tensor distribute(const at::Tensor& tensor, const std::shared_ptr<DeviceMesh>& mesh,
                      const std::vector<Placement>& placements);
/// `local` is this rank's part of a tensor of `sizes`; without sizes, all parts are as long as this one.
/// Differentiable: the gradient comes back in the same layout, with partial sums reduced. Throws UsageError if the part
/// has the wrong size.
at::Tensor from_local(const at::Tensor& local, const std::shared_ptr<DeviceMesh>& mesh,
                      const std::vector<Placement>& placements, std::vector<int64_t> sizes = {});
/// Returns the same values in another layout. Differentiable: the gradient returns to the layout of the input,
/// replicated along axes where that was partial.
at::Tensor redistribute(const at::Tensor& tensor, const std::vector<Placement>& placements);
/// The same, but the last collective continues in the background until somebody needs this rank's part: [Note: In
/// flight]. So does the gradient's.
at::Tensor start_redistribute(const at::Tensor& tensor, const std::vector<Placement>& placements);
/// Gathers the whole tensor on every rank, as a plain tensor. Differentiable.
at::Tensor full(const at::Tensor& tensor);
/// This rank's part, as a plain tensor with the same memory; a plain tensor is its own part. Differentiable: `gradient`
/// is the placement of the parts' gradients, by default that of the tensor (replicated where it is partial).
at::Tensor local(const at::Tensor& tensor, const std::vector<Placement>& gradient = {});
/// The same without autograd, and without its cost.
inline const at::Tensor& local_part(const at::Tensor& tensor) {
  const MeshSpec* spec = mesh_spec(tensor);
  return spec ? spec->local() : tensor;
}

/// Throws UsageError for a plain tensor.
const std::vector<Placement>& placements_of(const at::Tensor& tensor);
const std::shared_ptr<DeviceMesh>& mesh_of(const at::Tensor& tensor);
/// "mesh tensor [8, 4] float on {tp=2}: shard(0), here [4, 4]", then the local values.
std::string to_string(const at::Tensor& tensor);
/// One line per rank: the elements of each dimension that it holds.
std::string describe_shards(const at::Tensor& tensor);

/// Makes an outer tensor around a local one. `sizes` are global.
at::Tensor wrap_local(at::Tensor local, const std::shared_ptr<DeviceMesh>& mesh, const MeshLayout* layout,
                      c10::IntArrayRef sizes);
/// For callers that know whether all ranks have the same strides.
at::Tensor wrap_local(at::Tensor local, const std::shared_ptr<DeviceMesh>& mesh, const MeshLayout* layout,
                      c10::IntArrayRef sizes, bool same_strides);
/// The same around a part that may still be in flight.
at::Tensor wrap_started(StartedPart started, const std::shared_ptr<DeviceMesh>& mesh, const MeshLayout* layout,
                        c10::IntArrayRef sizes);
/// Whether all ranks hold equally many elements of a tensor of `sizes`.
bool is_even(const MeshLayout& layout, const DeviceMesh& mesh, c10::IntArrayRef sizes);

}  // namespace trireme
