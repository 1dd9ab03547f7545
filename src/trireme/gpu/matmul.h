// Matrix products by cuBLASLt with what surrounds them: bias, GELU, its derivative, a matrix that is added.
//
// All matrices are row-major: out[m, n] = a[m, k] · b[k, n]. Threads: all; plans are kept for each shape. Fails with
// Error where cuBLASLt has no algorithm, naming the shape.
#pragma once

#include "trireme/gpu/types.h"

namespace trireme::gpu {

/// What happens to the product before it is stored.
enum class Epilogue : uint8_t {
  kNone,
  kBias,          ///< + bias[n]
  kBiasGelu,      ///< gelu(product + bias); what gelu was given goes to `aux`
  kGeluBackward,  ///< product · gelu'(aux)
};

struct Matmul {
  int64_t m = 0, n = 0, k = 0;
  const void* a = nullptr;
  const void* b = nullptr;
  void* out = nullptr;
  bool a_transposed = false;  ///< a lies in memory as [k, m]
  bool b_transposed = false;  ///< b lies in memory as [n, k]
  Type type = Type::kBFloat16;      ///< of a and b, bias and aux
  Type out_type = Type::kBFloat16;  ///< kFloat, or the same as `type`
  float alpha = 1;
  const void* add = nullptr;  ///< [m, n] of out_type, added before the epilogue's bias; may be `out`
  Epilogue epilogue = Epilogue::kNone;
  const void* bias = nullptr;
  void* aux = nullptr;  ///< [m, n]
};

/// Enqueues the product. The first call for a shape chooses an algorithm: see set_matmul_search().
void matmul(const Matmul& product, Stream stream);

/// Off: the algorithm that cuBLASLt's own estimate puts first, the same every time. On: the fastest of its first few,
/// as measured at a shape's first call (not while a graph is captured), so that bits may differ from run to run.
void set_matmul_search(bool on);

}  // namespace trireme::gpu
