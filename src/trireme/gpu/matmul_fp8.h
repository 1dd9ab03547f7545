// Matrix products of 8-bit floating-point matrices, as quantise() of gpu/fp8.h makes them.
//
// out[m, n] = a[m, k] · b[n, k]ᵀ: both operands lie with rows along k, the only way that Hopper's units know. Threads,
// waiting and errors: as in matmul.h; UsageError for sizes that are not multiples of 16.
#pragma once

#include "trireme/gpu/fp8.h"
#include "trireme/gpu/matmul.h"

namespace trireme::gpu {

struct Fp8Operand {
  const void* values = nullptr;
  Fp8 type = Fp8::kE4M3;
  const Fp8Scale* scale =
      nullptr;  ///< as it was when the values were quantised: update_scales() comes after the product
};

struct MatmulFp8 {
  int64_t m = 0, n = 0, k = 0;
  Fp8Operand a;  ///< [m, k]
  Fp8Operand b;  ///< [n, k]; not both are e5m2
  void* out = nullptr;
  Type out_type = Type::kBFloat16;  ///< or kFloat
  const void* add = nullptr;        ///< [m, n] of out_type, added before the epilogue's bias; may be `out`
  Epilogue epilogue = Epilogue::kNone;
  const void* bias = nullptr;     ///< [n] of bfloat16
  void* aux = nullptr;            ///< [m, n] of bfloat16
  bool fast_accumulation = true;  ///< sums with fewer bits: not for sums over all tokens
};

void matmul_fp8(const MatmulFp8& product, Stream stream);

}  // namespace trireme::gpu
