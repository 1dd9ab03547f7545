#include "trireme/gpu/matmul.h"

#include <fmt/format.h>

#include <atomic>

#include "trireme/base/error.h"
#include "trireme/gpu/kernels/pointwise.h"
#include "trireme/gpu/matmul_epilogue.h"
#include "trireme/gpu/matmul_lt.h"

namespace trireme::gpu {
namespace {

std::atomic<bool> tf32_wanted{false};

bool has_bias(Epilogue epilogue) { return epilogue == Epilogue::kBias || epilogue == Epilogue::kBiasGelu; }
bool has_gelu(Epilogue epilogue) { return epilogue == Epilogue::kBiasGelu || epilogue == Epilogue::kGeluBackward; }

cublasLtEpilogue_t epilogue_of(const Matmul& product) {
  switch (product.epilogue) {
    case Epilogue::kBias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::kBiasGelu:
      return product.aux ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_BIAS;
    case Epilogue::kGeluBackward:
      return CUBLASLT_EPILOGUE_DGELU;
    default:
      return CUBLASLT_EPILOGUE_DEFAULT;
  }
}

void check_asked(const Matmul& product, const lt::Problem& problem) {
  const auto refuse = [&](const char* why) {
    throw UsageError(fmt::format("the matrix product {}: {}", lt::to_string(problem), why));
  };
  const bool is_gelu = has_gelu(product.epilogue);
  if (product.m < 0 || product.n < 0 || product.k <= 0) refuse("sizes must be positive");
  if (product.out_type != Type::kFloat && product.out_type != product.type) {
    refuse("out_type must be kFloat or the type of the operands");
  }
  if (is_gelu && product.out_type != product.type) refuse("with GELU the output has the type of the operands");
  if (has_bias(product.epilogue) && !product.bias) refuse("the epilogue needs a bias");
  if (product.epilogue == Epilogue::kGeluBackward && !product.aux) refuse("the derivative of GELU needs aux");
  if (is_gelu && product.aux && product.aux == product.out) refuse("aux and out must be different memory");
}

/// Whether cuBLASLt may be asked for the epilogue: its bias has the output's type, and `aux` rows of multiples of 8.
bool can_be_fused(const Matmul& product) {
  if (product.epilogue == Epilogue::kNone) return true;
  if (product.out_type != product.type) return false;
  const bool uses_aux = has_gelu(product.epilogue) && product.aux;
  return !uses_aux || (product.n % 8 == 0 && reinterpret_cast<uintptr_t>(product.aux) % 16 == 0);
}

void apply_epilogue(const Matmul& product, Stream stream) {
  const int64_t count = product.m * product.n;
  if (product.epilogue == Epilogue::kGeluBackward) {
    gelu_backward(product.aux, product.out, product.out, count, product.type, stream);
    return;
  }
  const bool is_gelu = product.epilogue == Epilogue::kBiasGelu;
  void* sum = is_gelu && product.aux ? product.aux : product.out;
  add_bias(product.out, sum, product.out_type, product.bias, product.type, product.m, product.n, stream);
  if (is_gelu) gelu(sum, product.out, count, product.type, stream);
}

}  // namespace

namespace lt {

void multiply(const Matmul& product, Problem problem, Operands operands, Stream stream) {
  problem.m = product.m;
  problem.n = product.n;
  problem.k = product.k;
  problem.a_transposed = product.a_transposed;
  problem.b_transposed = product.b_transposed;
  problem.out_type = data_type(product.out_type);
  problem.epilogue = epilogue_of(product);
  check_asked(product, problem);
  if (product.m == 0 || product.n == 0) return;
  operands.a = product.a;
  operands.b = product.b;
  operands.out = product.out;
  operands.add = product.add;
  operands.alpha = product.alpha;
  if (can_be_fused(product)) {
    if (has_bias(product.epilogue)) operands.bias = product.bias;
    if (has_gelu(product.epilogue)) operands.aux = product.aux;
    if (launch(problem, operands, stream)) return;
    operands.bias = nullptr;
    operands.aux = nullptr;
  }
  problem.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  if (product.epilogue == Epilogue::kNone || !launch(problem, operands, stream)) {
    throw Error(fmt::format("cuBLASLt has no algorithm for the matrix product {}", to_string(problem)),
                "align the matrices to 16 bytes and make their rows multiples of 16 bytes long");
  }
  apply_epilogue(product, stream);
}

}  // namespace lt

void matmul(const Matmul& product, Stream stream) {
  lt::Problem problem;
  problem.a_type = problem.b_type = lt::data_type(product.type);
  const bool tf32 = product.type == Type::kFloat && tf32_wanted.load(std::memory_order_relaxed);
  problem.compute = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  lt::multiply(product, problem, {}, stream);
}

void set_float_matmul_tf32(bool on) { tf32_wanted = on; }

}  // namespace trireme::gpu
