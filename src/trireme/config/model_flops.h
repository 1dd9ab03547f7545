// Model FLOPs of a training step, by the usual convention, so that speeds of different models can be compared.
#pragma once

#include "trireme/config/model_config.h"

namespace trireme {

/// Floating-point operations of the matmuls of one step: the forward pass, and twice as many in the backward pass.
///
/// Each matrix element costs 6 per token; attention's matmuls cost 12 · layers · seq · hidden per token, in full
/// although half of the scores are masked. For a GPT this is 72·B·s·l·h²·(1 + s/6h + V/12lh), as Megatron-Core counts
/// it. Not counted: recomputation, norms, activation functions, embedding look-ups and the optimizer. Returns 0 for
/// models without tokens, for which there is no such convention, and for a library's model.
double model_flops(const ModelConfig& model, int64_t num_samples);

}  // namespace trireme
