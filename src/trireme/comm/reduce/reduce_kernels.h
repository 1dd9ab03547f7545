// The inner loops behind comm/reduce/reduce.h, one table of them for each instruction set. For comm/reduce*.cpp and its
// tests.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "trireme/comm/reduce/reduce.h"

namespace trireme::kernels {

/// One pass over memory: combine all sources in registers, write the result to every destination.
struct Work {
  const std::byte* const* sources;  ///< as many as the kernel is made for
  std::byte* const* destinations;
  size_t num_destinations;
  size_t destination_offset;  ///< in bytes, added to each destination
  size_t num_bytes;
  size_t divisor;  ///< read by kernels for averages only
  bool streaming;
};
using Kernel = void (*)(const Work&);

constexpr size_t kNumOps = 5;
constexpr size_t kNumTypes = 7;
constexpr size_t kMaxFused = 8;

/// Every instruction set gives the same bits; only the payloads of NaNs may differ.
struct Kernels {
  /// fused[n] reduces n sources, null where no such kernel is made. All have 2; averages have 1, which only divides.
  using Fused = Kernel[kMaxFused + 1];

  std::string_view name;
  Fused fused[kNumOps][kNumTypes];
  Kernel copy;      ///< one source of bytes to all destinations
  void (*fence)();  ///< orders streaming stores before the stores that follow

  const Fused& of(ReduceOp op, DataType type) const {
    return fused[static_cast<size_t>(op)][static_cast<size_t>(type)];
  }
};

/// Null where this machine cannot run them.
const Kernels* portable();
#if defined(__x86_64__)
const Kernels* avx2();
const Kernels* avx512();
#else
inline const Kernels* avx2() { return nullptr; }
inline const Kernels* avx512() { return nullptr; }
#endif

/// The tables that this machine can run, the fastest first.
std::vector<const Kernels*> available();

/// The functions of comm/reduce/reduce.h with a given table.
void reduce_tree(const Kernels& kernels, ReduceOp op, DataType type, std::span<const void* const> sources,
                 std::span<void* const> destinations, size_t count, size_t divisor, Stores stores);
void copy_bytes(const Kernels& kernels, void* out, const void* in, size_t num_bytes, Stores stores);

}  // namespace trireme::kernels
