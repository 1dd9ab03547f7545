// Trades computation for memory: activations of a part of a model are not kept for the backward pass, which recomputes
// them.
#pragma once

#include <functional>

#include "trireme/tensor/tensors.h"

namespace trireme {

/// Returns function(x), and keeps only x. When its gradients arrive, the function is called again, on autograd's
/// thread, with the same random numbers (RandomScope) and autocast state as now, and differentiated: gradients of
/// anything else that it uses, such as parameters, go where they always do, hooks included.
///
/// Both calls must compute the same bits and must not change x. The function must live as long as the graph. If no
/// gradient is needed, it is simply called. Threads: all. Errors: what the function throws; Error for second-order
/// gradients.
Tensors recompute(const std::function<Tensors(const Tensors&)>& function, const Tensors& x);
at::Tensor recompute(const std::function<at::Tensor(const at::Tensor&)>& function, const at::Tensor& x);

}  // namespace trireme
