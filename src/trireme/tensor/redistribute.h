// Local tensors from one layout to another: runs the steps that layout/redistribution.h plans.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "trireme/tensor/in_flight.h"

namespace trireme {

/// The local part after redistribution; `sizes` are the global ones. Shares memory with the input where nothing
/// changes. Blocking on a CPU; on a GPU the current stream waits.
at::Tensor redistribute_local(at::Tensor local, DeviceMesh& mesh, const MeshLayout& from, const MeshLayout& to,
                              c10::IntArrayRef sizes);
/// The same, but the last step goes on in the background where it is a collective. `local` may be written by nobody
/// until it has landed.
StartedPart start_redistribute_local(const at::Tensor& local, DeviceMesh& mesh, const MeshLayout& from,
                                     const MeshLayout& to, c10::IntArrayRef sizes);

/// Reduces in place over the ranks of an axis; counted as an inner call.
void reduce_over_axis(at::Tensor& values, DeviceMesh& mesh, int axis, ReduceOp op);

/// `whole` cut along the axis: the part of this rank, a view where it is one piece.
at::Tensor cut_out(const at::Tensor& whole, const Placement& shard, int axis_size, int coordinate);

}  // namespace trireme
