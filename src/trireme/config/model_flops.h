// How much a training step has to compute, as others count it, so that speeds of different models can be compared.
#pragma once

#include "trireme/config/model_config.h"

namespace trireme {

/// Floating-point operations of the matrix products of one step: forward, and twice as much backward.
///
/// A weight of a matrix costs 6 per token; the products of attention cost 12 · layers · seq · hidden per token, in full
/// although half of them is masked. For a GPT that is 72·B·s·l·h²·(1 + s/6h + V/12lh), as Megatron-Core counts it.
/// Recomputation does not count, nor do norms, activations, the embedding's look-up and the optimizer. 0 for models of
/// images, which nobody counts like this.
double model_flops(const ModelConfig& model, int64_t num_samples);

}  // namespace trireme
