#include "trireme/gpu/matmul_fp8.h"

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/gpu/matmul_lt.h"

namespace trireme::gpu {
namespace {

cudaDataType_t data_type(Fp8 type) { return type == Fp8::kE4M3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2; }

void check_asked(const MatmulFp8& product) {
  const auto refuse = [&](const std::string& why, const std::string& cure) {
    throw UsageError(
        fmt::format("the product in 8 bits [{}, {}] · [{}, {}]ᵀ: {}", product.m, product.k, product.n, product.k, why),
        cure);
  };
  for (const int64_t size : {product.m, product.n, product.k}) {
    if (size % kFp8Multiple != 0) {
      refuse(fmt::format("{} is not a multiple of 16", size), "use bfloat16 for this product, or pad its matrices");
    }
  }
  for (const void* pointer : {product.a.values, product.b.values, static_cast<const void*>(product.out), product.add}) {
    if (reinterpret_cast<uintptr_t>(pointer) % kFp8Multiple != 0) {
      refuse("a matrix does not start at a multiple of 16 bytes", "align its memory");
    }
  }
  if (product.a.type == Fp8::kE5M2 && product.b.type == Fp8::kE5M2) {
    refuse("both operands are e5m2", "quantise one of them to e4m3");
  }
  if (!product.a.scale || !product.b.scale) refuse("an operand has no scale", "give both their Fp8Scale");
}

}  // namespace

void matmul_fp8(const MatmulFp8& product, Stream stream) {
  check_asked(product);
  Matmul rest;
  rest.m = product.m;
  rest.n = product.n;
  rest.k = product.k;
  rest.a = product.a.values;
  rest.b = product.b.values;
  rest.b_transposed = true;
  rest.out = product.out;
  rest.type = Type::kBFloat16;
  rest.out_type = product.out_type;
  rest.add = product.add;
  rest.epilogue = product.epilogue;
  rest.bias = product.bias;
  rest.aux = product.aux;
  lt::Problem problem;
  problem.a_type = data_type(product.a.type);
  problem.b_type = data_type(product.b.type);
  problem.fast_accumulation = product.fast_accumulation;
  lt::Operands operands;
  operands.a_scale = &product.a.scale->inverse;
  operands.b_scale = &product.b.scale->inverse;
  lt::multiply(rest, problem, operands, stream);
}

}  // namespace trireme::gpu
