// Less memory for more work: what a part of a model computes inside is not kept for the backward, which computes it
// again.
#pragma once

#include <functional>

#include "trireme/tensor/tensors.h"

namespace trireme {

/// function(x), of which only x is kept. When its gradients come, the function is called once more, on autograd's
/// thread, with the random numbers (RandomScope) and the autocast of now, and differentiated: gradients of what else
/// it uses, such as parameters, go where they always go, hooks included.
///
/// Both calls must compute the same bits and may not change x. The function must live as long as the graph. Without
/// gradients wanted it is plainly called. Threads: all. Errors: what the function throws; Error for a gradient of the
/// gradient.
Tensors recompute(const std::function<Tensors(const Tensors&)>& function, const Tensors& x);
at::Tensor recompute(const std::function<at::Tensor(const at::Tensor&)>& function, const at::Tensor& x);

}  // namespace trireme
