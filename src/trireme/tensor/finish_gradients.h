// Gradients of mesh tensors that come home during the backward pass.
//
// Where a batch is cut over an axis, the gradient of a weight is a partial sum. Left alone it stays one until the
// optimizer needs it, which then waits for one sum after another. finish_gradient() makes each go home as soon as it is
// there: an all-reduce, or a reduce-scatter where the axis cuts the weight, which goes on beside the rest of the
// backward pass ([Note: In flight]). A gradient that autograd copies first, since its memory is in another order than
// the leaf's, is summed there and then.
#pragma once

#include <ATen/core/Tensor.h>

namespace trireme {

/// From now on the gradient of a leaf, a mesh tensor, lies as the leaf does after every backward pass. Throws
/// UsageError for a plain tensor and for one without a gradient of its own. A GradientStore that takes the leaf does it
/// itself.
void finish_gradient(const at::Tensor& leaf);
/// Whether it does, and nothing else is hooked to the leaf's gradient.
bool finishes_gradient(const at::Tensor& leaf);

}  // namespace trireme
