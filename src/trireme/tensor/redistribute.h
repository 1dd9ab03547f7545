// Moves local tensors from one layout to another: executes the steps planned by layout/redistribution.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "trireme/tensor/in_flight.h"

namespace trireme {

/// Returns the local part after redistribution; `sizes` are global. Shares memory with the input if nothing changes.
/// Blocks on a CPU; on a GPU the current stream waits.
at::Tensor redistribute_local(at::Tensor local, DeviceMesh& mesh, const MeshLayout& from, const MeshLayout& to,
                              c10::IntArrayRef sizes);
/// The same, but if the last step is a collective it continues in the background. Nobody may write to `local` until it
/// has landed.
StartedPart start_redistribute_local(const at::Tensor& local, DeviceMesh& mesh, const MeshLayout& from,
                                     const MeshLayout& to, c10::IntArrayRef sizes);

/// Reduces in place over the ranks of an axis; counted as an inner call.
void reduce_over_axis(at::Tensor& values, DeviceMesh& mesh, int axis, ReduceOp op);

/// This rank's part of `whole`, sharded along the axis; a view if it is contiguous.
at::Tensor cut_out(const at::Tensor& whole, const Placement& shard, int axis_size, int coordinate);

}  // namespace trireme
