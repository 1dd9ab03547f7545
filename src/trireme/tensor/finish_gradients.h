// Reduces gradients of mesh tensors during the backward pass.
//
// If the batch is sharded over an axis, the gradient of a weight is a partial sum. By default it stays partial until
// the optimizer needs it, which then waits for one reduction after another. finish_gradient() starts each reduction as
// soon as the gradient exists: an all-reduce, or a reduce-scatter if the axis shards the weight, overlapped with the
// rest of the backward pass ([Note: In flight]). A gradient that autograd copies first, because its memory order
// differs from the leaf's, is reduced synchronously.
#pragma once

#include <ATen/core/Tensor.h>

namespace trireme {

/// From now on, after every backward pass, the gradient of `leaf`, a mesh tensor, has the layout of the leaf. Throws
/// UsageError for a plain tensor, or for a tensor that is not a leaf with requires_grad. A GradientStore that takes the
/// leaf does this itself.
void finish_gradient(const at::Tensor& leaf);
/// Whether finish_gradient() was called for the leaf and nothing else hooks its gradient.
bool finishes_gradient(const at::Tensor& leaf);

}  // namespace trireme
