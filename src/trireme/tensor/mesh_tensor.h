// Mesh tensors: libtorch tensors that lie over the ranks of a mesh and behave as one tensor.
//
// A mesh tensor has the global sizes; each rank holds its part of the elements. torch::nn modules, optimizers and
// functions take mesh tensors as they take others: operators run on the parts, and what must move is moved
// (docs/mesh_tensors.md). All ranks of the mesh call the same operators in the same order.
//
// [Note: Mesh tensor]
// The outer tensor is a c10::TensorImpl with the global sizes, a storage without bytes whose data_ptr() throws, the
// local tensor's keys and DispatchKey::Fake, and a MeshSpec as its backend meta. Autograd sees the outer tensor; below
// it the fallback of Fake (dispatch.cpp) sees every operator. Specs never change: tensors that share one by
// shallow copies cannot spoil each other. Outer strides follow the local ones where all ranks hold as much; otherwise
// they are those of a contiguous tensor, since a part with one element or none has other strides than the rest, and
// autograd's formulas look at strides: ranks must not see different ones.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "trireme/tensor/device_mesh.h"
#include "trireme/tensor/in_flight.h"

namespace trireme {

/// What a mesh tensor is made of.
struct MeshSpec : c10::BackendMeta {
  MeshSpec(at::Tensor local, std::shared_ptr<DeviceMesh> on, const MeshLayout* lies,
           std::shared_ptr<InFlight> under_way = nullptr)
      : mesh(std::move(on)), layout(lies), local_(std::move(local)), flight_(std::move(under_way)) {}

  /// This rank's part. Waits where a collective is still filling it.
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
  mutable std::shared_ptr<InFlight> flight_;  ///< null: it is there
};

/// Null for a plain tensor.
inline const MeshSpec* mesh_spec(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!impl->key_set().has(c10::DispatchKey::Fake)) return nullptr;
  return static_cast<const MeshSpec*>(const_cast<c10::TensorImpl*>(impl)->get_backend_meta());
}
inline bool is_mesh_tensor(const at::Tensor& tensor) { return mesh_spec(tensor) != nullptr; }

/// The part of `tensor` (whole, and the same on all ranks) that belongs here, as a copy: a leaf without gradient.
at::Tensor distribute(const at::Tensor& tensor, const std::shared_ptr<DeviceMesh>& mesh,
                      const std::vector<Placement>& placements);
/// `local` is this rank's part of a tensor of `sizes`; without sizes all parts are as long as this one. Differentiable:
/// the gradient comes back in the same layout, sums finished. Throws UsageError for a part of the wrong size.
at::Tensor from_local(const at::Tensor& local, const std::shared_ptr<DeviceMesh>& mesh,
                      const std::vector<Placement>& placements, std::vector<int64_t> sizes = {});
/// The same values in another layout. Differentiable: the gradient goes back to the layout of the input, or stays
/// where that was partial.
at::Tensor redistribute(const at::Tensor& tensor, const std::vector<Placement>& placements);
/// The same, but what moves last goes on in the background until somebody needs this rank's part: [Note: In flight].
/// The gradient comes back in the same way.
at::Tensor start_redistribute(const at::Tensor& tensor, const std::vector<Placement>& placements);
/// The whole tensor, on every rank, as a plain one. Differentiable.
at::Tensor full(const at::Tensor& tensor);
/// This rank's part, as a plain tensor that shares its memory; a plain tensor is its own part. Differentiable:
/// `gradient` says how the gradients of the parts form that of the whole, by default as the tensor lies (a partial's:
/// replicated).
at::Tensor local(const at::Tensor& tensor, const std::vector<Placement>& gradient = {});
/// The same without a graph, and without the cost of one.
inline const at::Tensor& local_part(const at::Tensor& tensor) {
  const MeshSpec* spec = mesh_spec(tensor);
  return spec ? spec->local() : tensor;
}

/// Throws UsageError for a plain tensor.
const std::vector<Placement>& placements_of(const at::Tensor& tensor);
const std::shared_ptr<DeviceMesh>& mesh_of(const at::Tensor& tensor);
/// "mesh tensor [8, 4] float on {tp=2}: shard(0), here [4, 4]", then the local values.
std::string to_string(const at::Tensor& tensor);
/// One line a rank: which elements of each dimension it holds.
std::string describe_shards(const at::Tensor& tensor);

/// An outer tensor around a local one. `sizes` are global.
at::Tensor wrap_local(at::Tensor local, const std::shared_ptr<DeviceMesh>& mesh, const MeshLayout* layout,
                      c10::IntArrayRef sizes);
/// For callers who know whether all ranks have the same strides.
at::Tensor wrap_local(at::Tensor local, const std::shared_ptr<DeviceMesh>& mesh, const MeshLayout* layout,
                      c10::IntArrayRef sizes, bool same_strides);
/// Around a part that may be on its way.
at::Tensor wrap_started(StartedPart started, const std::shared_ptr<DeviceMesh>& mesh, const MeshLayout* layout,
                        c10::IntArrayRef sizes);
/// All ranks hold as much of a tensor of `sizes`.
bool is_even(const MeshLayout& layout, const DeviceMesh& mesh, c10::IntArrayRef sizes);

}  // namespace trireme
