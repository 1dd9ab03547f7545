// The packed formats of block_format.h on a GPU: the same bytes, the same values.
#pragma once

#include "trireme/compress/formats/block_format.h"
#include "trireme/gpu/types.h"

namespace trireme::gpu {

/// Encodes `count` values, of which the first is element `first` of the random key. With `keep_rest`, `values` become
/// what was not sent.
void encode_blocks(BlockFormat format, float* values, size_t count, uint8_t* out, const RandomKey& random,
                   uint64_t first, bool keep_rest, Stream stream);
/// out = the decoded values, or += them.
void decode_blocks(BlockFormat format, const uint8_t* in, size_t count, float* out, bool add, Stream stream);

}  // namespace trireme::gpu
