// The two ends of a language model: embeddings, and the loss with its gradient.
#pragma once

#include "trireme/gpu/types.h"

namespace trireme::gpu {

/// Where logits' row i is wanted to be targets[i]; rows with target −100 do not count. Writes losses[i] = −log softmax
/// (0 for rows that do not count) and, where `write_gradient`, replaces the logits by scale · (softmax − one-hot). Each
/// row is read from memory once. `stride` is the distance of rows, `classes` the number of logits in one.
/// A target outside [0, classes) other than −100 gives a loss and a gradient that are NaN. What lies between rows is
/// not touched.
struct CrossEntropyShape {
  int64_t rows = 0;
  int64_t classes = 0;
  int64_t stride = 0;
  Type type = Type::kFloat;
};
void cross_entropy(const CrossEntropyShape& shape, void* logits, const int64_t* targets, float scale,
                   bool write_gradient, float* losses, Stream stream);

/// *sum = Σ values · factor, in a fixed order.
void sum_all(const float* values, int64_t count, float factor, float* sum, Stream stream);

/// y[i] = table[tokens[i]] (+ positions[i modulo seq] where not null), rows of `width`. Tokens outside [0, vocab) give
/// rows of NaN.
struct EmbeddingShape {
  int64_t rows = 0;  ///< of tokens
  int64_t seq = 0;   ///< rows of one sample
  int64_t width = 0;
  int64_t vocab = 0;
  Type type = Type::kFloat;
};
void embedding(const EmbeddingShape& shape, const int64_t* tokens, const void* table, const void* positions, void* y,
               Stream stream);

/// d_table [vocab, width] is written whole, zero where no token was; sums run in the order of the rows, in float32:
/// the same bits every time. d_positions [seq, width] where not null. Tokens outside [0, vocab) count for positions
/// alone. `scratch` starts at a multiple of 256 bytes.
size_t embedding_backward_scratch(const EmbeddingShape& shape);
void embedding_backward(const EmbeddingShape& shape, const int64_t* tokens, const void* dy, void* d_table,
                        void* d_positions, void* scratch, Stream stream);

}  // namespace trireme::gpu
