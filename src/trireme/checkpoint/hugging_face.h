// Weights of GPT-2 and Llama under the names and shapes of Hugging Face, there and back, as bytes.
//
// There and back is the identity, bit for bit, for every element type. docs/models.md has the table. Threads: all.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trireme/checkpoint/tensor_view.h"
#include "trireme/config/model_config.h"

namespace trireme {

/// All tensors of a model, renamed, split and transposed as `transformers` has them. Throws UsageError for a kind of
/// model that has no counterpart there, and Error that lists all tensors that are missing, unknown or of a wrong shape.
std::vector<OwnedTensor> to_hugging_face(const ModelConfig& config, std::span<const TensorView> tensors);

/// The way back, with the same errors. Names of GPT-2 may lack "transformer.", causal masks that old files hold
/// (attn.bias, attn.masked_bias, rotary_emb.inv_freq) are ignored, and so is an output layer of tied weights that
/// repeats the embedding; one that differs from it is an error.
std::vector<OwnedTensor> from_hugging_face(const ModelConfig& config, std::span<const TensorView> tensors);

/// The text of `config.json`, so that `transformers` loads the folder. `type` is that of the weights.
std::string hugging_face_config(const ModelConfig& config, DataType type);

}  // namespace trireme
