// Words that all GPU code shares: element types, the stream, and what a failed call of CUDA becomes.
//
// No header of this folder needs CUDA's own, so that callers are compiled by any compiler; all of it is there in GPU
// builds only (TRIREME_CUDA), but for gpu/device.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

struct CUstream_st;

namespace trireme::gpu {

using Stream = CUstream_st*;

/// Types that models compute in. Sums are always float32.
enum class Type : uint8_t { kFloat, kHalf, kBFloat16 };

constexpr size_t size_of(Type type) { return type == Type::kFloat ? 4 : 2; }

/// Throws Error that names the call and CUDA's words unless `code` (a cudaError_t) is success.
void check(int code, const char* call);

}  // namespace trireme::gpu
