// Matrix products by cuBLASLt with what surrounds them: bias, GELU, its derivative, a matrix that is added.
//
// All matrices are row-major: out[m, n] = a[m, k] · b[k, n]. Threads: all; algorithms are kept for each shape. Nothing
// blocks but a shape's first call with the search on. Sums are the same bits every time for one algorithm. Fails with
// Error where cuBLASLt has no algorithm, naming the shape.
#pragma once

#include "trireme/gpu/types.h"

namespace trireme::gpu {

/// What happens to the product before it is stored.
enum class Epilogue : uint8_t {
  kNone,
  kBias,          ///< + bias[n]
  kBiasGelu,      ///< gelu(product + bias); what gelu was given goes to `aux` where that is not null
  kGeluBackward,  ///< product · gelu'(aux)
};

struct Matmul {
  int64_t m = 0, n = 0, k = 0;
  const void* a = nullptr;
  const void* b = nullptr;
  void* out = nullptr;
  bool a_transposed = false;        ///< a lies in memory as [k, m]
  bool b_transposed = false;        ///< b lies in memory as [n, k]
  Type type = Type::kBFloat16;      ///< of a and b, bias and aux
  Type out_type = Type::kBFloat16;  ///< kFloat, or the same as `type`; with GELU always the same
  float alpha = 1;
  const void* add = nullptr;  ///< [m, n] of out_type, added before the epilogue's bias; may be `out`
  Epilogue epilogue = Epilogue::kNone;
  const void* bias = nullptr;
  void* aux = nullptr;  ///< [m, n]
};

/// Enqueues the product. The first call for a shape chooses an algorithm: see set_matmul_search(). Epilogues for which
/// cuBLASLt has none (odd widths, misaligned memory) cost passes of their own over `out`.
void matmul(const Matmul& product, Stream stream);

/// Off: the algorithm that cuBLASLt's own estimate puts first, the same every time. On: the fastest of its first few,
/// as measured at a shape's first call (not while a graph is captured), so that bits may differ from run to run.
void set_matmul_search(bool on);

/// Whether products of floats may round their operands to TF32 (10 bits of fraction): off at first.
void set_float_matmul_tf32(bool on);

/// Gets ready what products on this stream of the current device share: the handle and the stream's workspace. Call it
/// before a graph is captured. Products on one stream use one workspace, so a graph that was captured on this stream
/// must not run beside the stream's own work.
void warm_matmul(Stream stream);

}  // namespace trireme::gpu
