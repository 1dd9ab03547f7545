// Causal attention by cuDNN, forward and backward, on queries, keys and values where they lie.
//
// Each of q, k, v and o is [batch, seq, heads, head_dim] with its own distances; the last dim is contiguous. Gradients
// are written with distances of their own too, so they can go side by side into one matrix. Threads: all; plans are
// kept for each shape. Memory: a plan asks for scratch. Fails with Error, naming the shape, where cuDNN has no plan.
#pragma once

#include <functional>

#include "trireme/gpu/types.h"

namespace trireme::gpu {

/// Distances in elements between samples, tokens and heads.
struct HeadStrides {
  int64_t sample = 0, token = 0, head = 0;
  bool operator==(const HeadStrides&) const = default;
};

struct AttentionShape {
  int64_t batch = 0, seq = 0, heads = 0, kv_heads = 0, head_dim = 0;
  Type type = Type::kBFloat16;  ///< kHalf or kBFloat16
  HeadStrides q, k, v, o;
  HeadStrides dq, dk, dv, d_o;  ///< of the backward
  /// The backward's sums in a fixed order: the same bits every time, a little slower.
  bool deterministic = true;
  bool operator==(const AttentionShape&) const = default;
};

/// Whether cuDNN computes this shape. (It wants a head_dim of at most 128 that is a multiple of 8.)
bool attention_serves(const AttentionShape& shape);

/// Gives scratch memory of that many bytes, on the stream of the call; it may be reused once the call has returned.
using Scratch = std::function<void*(size_t num_bytes)>;

/// `log_sums` [batch, heads, seq] is kept for the backward.
void attention(const AttentionShape& shape, const void* q, const void* k, const void* v, void* o, float* log_sums,
               const Scratch& scratch, Stream stream);
void attention_backward(const AttentionShape& shape, const void* q, const void* k, const void* v, const void* o,
                        const void* d_o, const float* log_sums, void* dq, void* dk, void* dv, const Scratch& scratch,
                        Stream stream);

}  // namespace trireme::gpu
