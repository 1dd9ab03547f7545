// The fastest of several algorithms for a product, as measured.
#pragma once

#include <cublasLt.h>

#include <functional>
#include <span>

#include "trireme/gpu/types.h"

namespace trireme::gpu::lt {

/// Runs each candidate by `run` on the stream, several times, and gives the index of the fastest; an earlier one wins
/// unless a later one is 2% faster. Candidates for which `run` says false are left out; SIZE_MAX where all are. Blocks
/// until the stream has run them.
size_t fastest(std::span<const cublasLtMatmulHeuristicResult_t> candidates, Stream stream,
               const std::function<bool(const cublasLtMatmulAlgo_t&)>& run);

}  // namespace trireme::gpu::lt
