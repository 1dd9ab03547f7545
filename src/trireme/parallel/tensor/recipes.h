// Tensor parallelism for the built-in models, as rules over the names of their parameters.
//
// Megatron's pattern: the first linear layer of a pair is sharded by outputs, the second by inputs, so that a block
// costs one sum after its attention and one after its MLP. Attention is sharded by heads, embedding and output layer by
// vocabulary; of two convolutions, the first by output channels, the second by input channels.
#pragma once

#include "trireme/config/model_config.h"
#include "trireme/parallel/tensor/layout_rules.h"

namespace trireme {

/// Rules for `ranks` along the axis "tp". Throws UsageError, naming the key, if the model cannot be split: heads that
/// `ranks` does not divide, key/value heads of which neither number divides the other, more ranks than hidden units,
/// vocabulary entries or (ResNet) 64 channels.
LayoutRules tensor_parallel_rules(const ModelConfig& model, int ranks);

}  // namespace trireme
