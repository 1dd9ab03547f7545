// Tensor parallelism for the models of the project, as rules over the names of their parameters.
//
// Megatron's pattern: the first linear layer of a pair is cut by outputs, the second by inputs, so that a block costs
// one sum after its attention and one after its MLP. Attention is cut by heads, embedding and head by vocabulary; of
// two convolutions the first by output channels, the second by input channels.
#pragma once

#include "trireme/config/model_config.h"
#include "trireme/parallel/tensor/layout_rules.h"

namespace trireme {

/// For `ranks` along the axis "tp". Throws UsageError that names the key where the model cannot be split so: heads that
/// the ranks do not divide, a hidden layer or vocabulary smaller than the ranks.
LayoutRules tensor_parallel_rules(const ModelConfig& model, int ranks);

}  // namespace trireme
