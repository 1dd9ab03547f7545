// How kernels are chosen and launched: by element type, by alignment, with errors checked.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "trireme/gpu/types.h"

namespace trireme::gpu {

/// Grids that decide the order of a sum are cut for this many multiprocessors (an H200's) on every GPU: the bits then
/// depend on shape and alignment of the operands alone.
inline constexpr int64_t kMultiprocessors = 132;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <typename T>
struct TypeTag {
  using type = T;
};

/// Calls `function` with the tag of the C++ type.
template <typename Function>
void with_type(Type type, Function&& function) {
  switch (type) {
    case Type::kFloat:
      return function(TypeTag<float>{});
    case Type::kHalf:
      return function(TypeTag<__half>{});
    case Type::kBFloat16:
      return function(TypeTag<__nv_bfloat16>{});
  }
}

/// Whether all pointers (null counts) are multiples of 16 bytes.
template <typename... Pointers>
bool are_aligned(const Pointers*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

inline void check_launch(const char* kernel) { check(cudaGetLastError(), kernel); }

}  // namespace trireme::gpu
