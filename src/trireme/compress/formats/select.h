// Which elements of an array are worth sending: the largest.
//
// Indices come in ascending order, and are a function of the values alone: equal magnitudes are taken from the front. A
// NaN counts as larger than everything, so that it travels and is seen. Threads: all. Nothing blocks. Arrays have less
// than 2^32 elements.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trireme/compress/formats/kernels.h"

namespace trireme {

/// How many of `count` elements a density keeps: at least one, unless there are none.
size_t kept_elements(size_t count, double density);

/// Exactly the min(k, size) elements of largest magnitude. One pass over the array in most cases: a sample tells where
/// the k-th largest roughly lies, and only what is larger is looked at again.
std::vector<uint32_t> select_largest(std::span<const float> values, size_t k);
std::vector<uint32_t> select_largest(const compress_kernels::Kernels& kernels, std::span<const float> values, size_t k);

}  // namespace trireme
