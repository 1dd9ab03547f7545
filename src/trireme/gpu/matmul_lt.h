// The part of a matrix product that talks to cuBLASLt: the algorithm for a problem, kept, and the launch.
//
// Inside gpu/ only. Problems are row-major like those of matmul.h. Threads: all.
#pragma once

#include <cublasLt.h>

#include <compare>
#include <string>

#include "trireme/gpu/matmul.h"

namespace trireme::gpu::lt {

/// Everything that decides an algorithm.
struct Problem {
  int64_t m = 0, n = 0, k = 0;
  bool a_transposed = false, b_transposed = false;
  cudaDataType_t a_type = CUDA_R_16BF, b_type = CUDA_R_16BF;
  cudaDataType_t out_type = CUDA_R_16BF;  ///< of out, add, bias and aux
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  bool fast_accumulation = false;  ///< of 8-bit types

  auto operator<=>(const Problem&) const = default;
};

struct Operands {
  const void* a = nullptr;
  const void* b = nullptr;
  void* out = nullptr;
  const void* add = nullptr;
  const void* bias = nullptr;
  void* aux = nullptr;
  const float* a_scale = nullptr;  ///< in device memory; for 8-bit types
  const float* b_scale = nullptr;
  float alpha = 1;
};

/// Enqueues the product; false where cuBLASLt has no algorithm for the problem. Other failures are an Error.
[[nodiscard]] bool launch(const Problem& problem, const Operands& operands, Stream stream);

/// Enqueues the product with its epilogue, in one kernel or after it. `problem` says the types of a and b and how to
/// compute, `operands` the scales; the rest comes from `product`. Throws UsageError for what cannot be.
void multiply(const Matmul& product, Problem problem, Operands operands, Stream stream);

/// "[64, 768] · [768, 3072]ᵀ of bfloat16 …", for errors.
std::string to_string(const Problem& problem);

cudaDataType_t data_type(Type type);

}  // namespace trireme::gpu::lt
