// Element-wise reductions, vectorised, with one order of additions for every transport.
//
// [Note: Reduction order]
// n contributions are combined by one binary tree: split at the largest power of two below n, reduce the left part and
// the right part, combine the two. For 6: ((0 1)(2 3))(4 5). Each inner node rounds to the element type, so that an
// algorithm that sends partial results over a wire and one that sums in registers give the same bits. Combining is
// commutative, so only the shape of the tree matters. An average is the sum of the tree, divided once at the end.
//
// Half and bfloat16 are combined in float and rounded to nearest even at every node. Integers wrap, and their averages
// are cut off toward zero. Minimum and maximum give a NaN where either side is a NaN, and take -0 for less than +0.
// A NaN stays a NaN, but its sign and payload are not defined: every other result has the same bits on every processor.
//
// All functions may run on several threads at once, allocate nothing and take memory at any alignment.
#pragma once

#include <span>

#include "trireme/comm/types.h"

namespace trireme {

/// The size of the left part of the tree over n >= 2 contributions: the largest power of two below n.
size_t tree_split(size_t n);

/// How results are stored. Streaming stores bypass the caches: right for results that nobody reads soon.
enum class Stores { kCached, kStreaming };

/// out[i] = a[i] op b[i]. `out` may be `a` or `b`; other overlap is not allowed. kAverage adds.
void combine(ReduceOp op, DataType type, void* out, const void* a, const void* b, size_t count);

/// Reduces the sources in the order of the tree and writes the result to every destination. A destination may be one of
/// the sources; other overlap is not allowed. With kAverage the sum is divided by `divisor` before it is written.
/// Needs at least one source, and a divisor of at least 1. kStreaming uses cached stores at unaligned addresses, and
/// puts the streamed ones in order before whatever the caller stores next.
void reduce_tree(ReduceOp op, DataType type, std::span<const void* const> sources, std::span<void* const> destinations,
                 size_t count, size_t divisor = 1, Stores stores = Stores::kCached);

/// The closing step of an average: data[i] /= divisor, at least 1. Does nothing for other reductions.
void finish(ReduceOp op, DataType type, void* data, size_t count, size_t divisor);

/// memcpy, with streaming stores when asked.
void copy_bytes(void* out, const void* in, size_t num_bytes, Stores stores = Stores::kCached);

/// Conversions with round to nearest even; NaN stays NaN, and becomes quiet where it is rounded.
float to_float(Half value);
float to_float(BFloat16 value);
Half to_half(float value);
BFloat16 to_bfloat16(float value);

}  // namespace trireme
