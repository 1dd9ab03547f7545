#include "trireme/gpu/matmul_lt.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/gpu/matmul.h"
#include "trireme/gpu/matmul_search.h"
#include "trireme/gpu/matmul_workspace.h"

namespace trireme::gpu {
namespace lt {
namespace {

constexpr int kNumCandidates = 12;
constexpr uint32_t kWide = 16;  ///< bytes to which the fast algorithms want everything aligned

std::atomic<bool> search_wanted{false};

bool is_wide(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % kWide == 0; }

struct Key {
  Problem problem;
  int device = 0;
  bool has_add = false, add_is_out = false, scaled = false, searched = false;
  bool wide_a = true, wide_b = true, wide_add = true, wide_out = true;

  auto operator<=>(const Key&) const = default;
};

Key key_of(const Problem& problem, const Operands& x, bool searched) {
  Key key;
  key.problem = problem;
  key.device = current_device();
  key.has_add = x.add != nullptr;
  key.add_is_out = x.add == x.out;
  key.scaled = x.a_scale != nullptr;
  key.searched = searched;
  key.wide_a = is_wide(x.a);
  key.wide_b = is_wide(x.b);
  key.wide_add = is_wide(x.add);
  key.wide_out = is_wide(x.out) && is_wide(x.bias) && is_wide(x.aux);
  return key;
}

struct Plan {
  bool exists = false;  ///< false: cuBLASLt has none
  cublasLtMatmulAlgo_t algorithm{};
};

struct Plans {
  std::mutex mutex;
  std::map<Key, Plan> all;
};

Plans& plans() {
  static auto* kept = new Plans;
  return *kept;
}

size_t size_of_element(cudaDataType_t type) {
  return type == CUDA_R_32F ? 4 : type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2 ? 1 : 2;
}

/// A problem in cuBLASLt's words. It knows matrices by columns: a row-major matrix is the transposed column-major one,
/// so outᵀ = bᵀ · aᵀ, its A is our b, and each operand that lies as [k, …] on our side is not transposed on its. Cheap
/// to build, so each launch has its own and threads share none.
class Description {
 public:
  Description(const Problem& p, const Operands& x) {
    ok(cublasLtMatmulDescInit(&operation, p.compute, CUDA_R_32F));
    set(CUBLASLT_MATMUL_DESC_TRANSA, static_cast<int32_t>(p.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N));
    set(CUBLASLT_MATMUL_DESC_TRANSB, static_cast<int32_t>(p.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N));
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<uint32_t>(p.epilogue));
    if (x.bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, x.bias);
    if (x.aux) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, static_cast<const void*>(x.aux));
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.n);
    }
    if (x.a_scale) {
      set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void*>(x.b_scale));
      set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const void*>(x.a_scale));
      set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<int8_t>(p.fast_accumulation));
    }
    layout(first, p.b_type, p.b_transposed, p.n, p.k);
    layout(second, p.a_type, p.a_transposed, p.k, p.m);
    layout(out, p.out_type, false, p.n, p.m);
  }

  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t first, second, out;

 private:
  static void ok(cublasStatus_t status) { check_lt(status, "describing a matrix product to cuBLASLt"); }
  template <typename T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value) {
    ok(cublasLtMatmulDescSetAttribute(&operation, attribute, &value, sizeof value));
  }
  /// [rows, columns] by columns; transposed, it lies as [columns, rows].
  static void layout(cublasLtMatrixLayoutOpaque_t& to, cudaDataType_t type, bool transposed, int64_t rows,
                     int64_t columns) {
    if (transposed) std::swap(rows, columns);
    ok(cublasLtMatrixLayoutInit(&to, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), rows));
  }
};

cublasStatus_t enqueue(const Description& d, const Operands& x, const cublasLtMatmulAlgo_t& algorithm, Stream stream) {
  const float beta = x.add ? 1 : 0;
  auto* operation = const_cast<cublasLtMatmulDescOpaque_t*>(&d.operation);
  auto* first = const_cast<cublasLtMatrixLayoutOpaque_t*>(&d.first);
  auto* second = const_cast<cublasLtMatrixLayoutOpaque_t*>(&d.second);
  auto* out = const_cast<cublasLtMatrixLayoutOpaque_t*>(&d.out);
  return cublasLtMatmul(handle(), operation, &x.alpha, x.b, first, x.a, second, &beta, x.add ? x.add : x.out, out,
                        x.out, out, &algorithm, workspace(stream), kWorkspaceBytes, stream);
}

/// What cuBLASLt's estimate offers, best first. Sums split over k must be kept in float and summed in a step of their
/// own: sums in place would be rounded to the output's type and meet in the order of arrival.
std::vector<cublasLtMatmulHeuristicResult_t> candidates(const Key& key, Description& d, int count) {
  cublasLtMatmulPreferenceOpaque_t preference;
  check_lt(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit");
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    check_lt(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof value),
             "cublasLtMatmulPreferenceSetAttribute");
  };
  const auto bytes = [](bool wide, cudaDataType_t type) {
    return wide ? kWide : static_cast<uint32_t>(size_of_element(type));
  };
  const Problem& p = key.problem;
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kWorkspaceBytes));
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, bytes(key.wide_b, p.b_type));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, bytes(key.wide_a, p.a_type));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, bytes(key.has_add ? key.wide_add : key.wide_out, p.out_type));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, bytes(key.wide_out, p.out_type));
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<size_t>(count));
  int returned = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle(), &d.operation, &d.first, &d.second, &d.out,
                                                               &d.out, &preference, count, found.data(), &returned);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return {};
  check_lt(status, "cublasLtMatmulAlgoGetHeuristic for " + to_string(p));
  found.resize(static_cast<size_t>(returned));
  std::erase_if(found, [](const auto& result) { return result.state != CUBLAS_STATUS_SUCCESS; });
  return found;
}

/// Measures in memory of its own where a second run into `out` would not give what the first gave.
Plan search(const Problem& p, Operands x, const std::vector<cublasLtMatmulHeuristicResult_t>& found, Stream stream) {
  std::unique_ptr<void, decltype(&cudaFree)> scratch(nullptr, cudaFree);
  if (x.add == x.out) {
    void* memory = nullptr;
    const size_t bytes = static_cast<size_t>(p.m) * static_cast<size_t>(p.n) * size_of_element(p.out_type);
    if (cudaMalloc(&memory, bytes) != cudaSuccess) {  // too little memory to measure in: trust the estimate
      cudaGetLastError();
      return {true, found.front().algo};
    }
    scratch.reset(memory);
    check(cudaMemcpyAsync(memory, x.out, bytes, cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync");
    x.add = x.out = memory;
  }
  const Description description(p, x);
  const size_t best = fastest(found, stream, [&](const cublasLtMatmulAlgo_t& algorithm) {
    return enqueue(description, x, algorithm, stream) == CUBLAS_STATUS_SUCCESS;
  });
  return best == SIZE_MAX ? Plan{} : Plan{true, found[best].algo};
}

bool is_capturing(Stream stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

Plan plan_for(const Problem& problem, const Operands& operands, Description& description, Stream stream) {
  Key key = key_of(problem, operands, search_wanted.load(std::memory_order_relaxed));
  Plans& kept = plans();
  const std::lock_guard lock(kept.mutex);
  auto found = kept.all.find(key);
  if (found == kept.all.end() && key.searched && is_capturing(stream)) {
    key.searched = false;
    found = kept.all.find(key);
  }
  if (found != kept.all.end()) return found->second;
  const auto offered = candidates(key, description, key.searched ? kNumCandidates : 1);
  Plan plan;
  if (!offered.empty()) {
    const CaptureBystander bystander;
    plan = key.searched ? search(problem, operands, offered, stream) : Plan{true, offered.front().algo};
  }
  kept.all.emplace(key, plan);
  return plan;
}

}  // namespace

bool launch(const Problem& problem, const Operands& operands, Stream stream) {
  Description description(problem, operands);
  const Plan plan = plan_for(problem, operands, description, stream);
  if (!plan.exists) return false;
  const cublasStatus_t status = enqueue(description, operands, plan.algorithm, stream);
  if (status != CUBLAS_STATUS_SUCCESS) check_lt(status, "the matrix product " + to_string(problem));
  return true;
}

std::string to_string(const Problem& p) {
  const auto type = [](cudaDataType_t t) {
    switch (t) {
      case CUDA_R_32F:
        return "float";
      case CUDA_R_16F:
        return "half";
      case CUDA_R_16BF:
        return "bfloat16";
      case CUDA_R_8F_E4M3:
        return "e4m3";
      default:
        return "e5m2";
    }
  };
  return fmt::format("[{}, {}] · [{}, {}] of {} · {} to {} (transposed: {}, epilogue {})", p.m, p.k, p.k, p.n,
                     type(p.a_type), type(p.b_type), type(p.out_type),
                     p.a_transposed ? (p.b_transposed ? "both" : "first") : (p.b_transposed ? "second" : "none"),
                     static_cast<int>(p.epilogue));
}

cudaDataType_t data_type(Type type) {
  return type == Type::kFloat ? CUDA_R_32F : type == Type::kHalf ? CUDA_R_16F : CUDA_R_16BF;
}

}  // namespace lt

void set_matmul_search(bool on) { lt::search_wanted = on; }

void warm_matmul(Stream stream) {
  lt::handle();
  lt::workspace(stream);
}

}  // namespace trireme::gpu
