#include "trireme/models/kernels/multiply.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>

namespace trireme::model_kernels {
namespace {

constexpr int64_t kMaxColumns = 512;           // a block's packed B then leaves half the L2 cache free
constexpr int64_t kLeastProducts = 1'000'000;  // fewer are not worth another thread

}  // namespace

const Kernels* best() {
  static const Kernels* const chosen = avx512() ? avx512() : avx2();
  return chosen;
}

bool multiply_pays() {
#if defined(__x86_64__)
  static const bool pays = avx512() && __builtin_cpu_is("amd");
  return pays;
#else
  return false;
#endif
}

float* scratch(ScratchSlot slot, int64_t floats) {
  struct Free {
    void operator()(float* memory) const { ::operator delete[](memory, std::align_val_t{64}); }
  };
  struct Buffer {
    std::unique_ptr<float[], Free> memory;
    int64_t floats = 0;
  };
  thread_local Buffer buffers[2];
  Buffer& buffer = buffers[static_cast<size_t>(slot)];
  if (buffer.floats < floats) {
    buffer.memory.reset();
    buffer.floats = 0;
    const size_t num_bytes = static_cast<size_t>(floats) * sizeof(float);
    buffer.memory.reset(static_cast<float*>(::operator new[](num_bytes, std::align_val_t{64})));
    buffer.floats = floats;
  }
  return buffer.memory.get();
}

void multiply(const Kernels& kernels, int64_t rows, int64_t columns, int64_t depth, const Matrix& a, const Matrix& b,
              const float* bias, float* c) {
  if (depth == 0) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) c[i * columns + j] = bias ? bias[j] : 0;
    }
    return;
  }
  const int64_t panel = kernels.gemm.panel;
  const int64_t most = (std::min(kMaxColumns, columns) + panel - 1) / panel * panel;
  float* const packed = scratch(ScratchSlot::kPackedB, most * std::min(kMaxDepth, depth));
  for (int64_t j = 0; j < columns; j += kMaxColumns) {
    const int64_t here = std::min(kMaxColumns, columns - j);
    for (int64_t k = 0; k < depth; k += kMaxDepth) {
      const int64_t deep = std::min(kMaxDepth, depth - k);
      kernels.pack_b({b.data + k * b.row + j * b.column, b.row, b.column}, deep, here, packed);
      const GemmBlock block{{a.data + k * a.column, a.row, a.column},
                            packed,
                            here,
                            deep,
                            c + j,
                            columns,
                            bias ? bias + j : nullptr,
                            k > 0};
      const int64_t grain = std::max(kernels.gemm.rows_per_tile, kLeastProducts / (here * deep));
      at::parallel_for(0, rows, grain, [&](int64_t first, int64_t end) { kernels.gemm_rows(block, first, end); });
    }
  }
}

}  // namespace trireme::model_kernels
