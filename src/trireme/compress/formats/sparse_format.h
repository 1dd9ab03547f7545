// The wire format of a choice of elements: 48 bits for each, in ascending order.
//
// [Note: Sparse format]
//   uint32 × ceil(n / 65536)   how many elements come from each 65,536 of the array
//   uint16 × k                 their places inside those
//   float32 × k                their values
// all little endian. The array's length n is known to both sides; k is the sum of the first part.
//
// Threads: all. Nothing blocks. Bytes from outside that do not fit are refused with Error.
#pragma once

#include <cstdint>
#include <span>

namespace trireme {

/// Bytes of k elements of an array of `count`.
size_t sparse_bytes(size_t count, size_t k);

/// `indices` ascend; `out` has sparse_bytes().
void encode_sparse(size_t count, std::span<const uint32_t> indices, std::span<const float> values,
                   std::span<uint8_t> out);
/// out[index] += value for all of them.
void add_sparse(std::span<const uint8_t> in, std::span<float> out);

}  // namespace trireme
