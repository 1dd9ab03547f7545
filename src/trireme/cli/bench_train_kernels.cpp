#include "trireme/cli/bench_train_kernels.h"

#include <algorithm>
#include <cctype>

namespace trireme::cli {
namespace {

constexpr std::string_view kRest = "rest";

struct Rule {
  std::string_view part, name;
};

// The first that fits counts: attention has matrix products inside, matrix products have activations, and the
// optimizer has a norm. Parts are of names in lower case.
constexpr Rule kRules[] = {{"nccl", "communication"},
                           {"combine_kernel", "communication"},
                           {"::spin(", "communication"},
                           {"sdpa", "attention"},
                           {"cudnn::fusion", "attention"},
                           {"flash", "attention"},
                           {"fmha", "attention"},
                           {"update_kernel<", "optimizer"},
                           {"block_sums_kernel", "optimizer"},
                           {"tree_kernel", "optimizer"},
                           {"multi_tensor_apply", "optimizer"},
                           {"nvjet", "matrix products"},
                           {"gemm", "matrix products"},
                           {"gemv", "matrix products"},
                           {"xmma", "matrix products"},
                           {"cutlass", "matrix products"},
                           {"splitkreduce", "matrix products"},
                           {"quantise_kernel", "8-bit copies"},
                           {"update_scales", "8-bit copies"},
                           {"measure_kernel", "8-bit copies"},
                           {"cross_entropy", "loss"},
                           {"sum_values", "loss"},
                           {"nll_loss", "loss"},
                           {"softmax", "loss"},
                           {"norm_forward", "norms"},
                           {"norm_backward", "norms"},
                           {"layer_norm", "norms"},
                           {"batch_norm", "norms"},
                           {"chunk_sums", "column sums and biases"},
                           {"partial_sums", "column sums and biases"},
                           {"add_bias_kernel", "column sums and biases"},
                           {"look_up", "embedding"},
                           {"sum_chunk", "embedding"},
                           {"join_chunks", "embedding"},
                           {"sum_positions", "embedding"},
                           {"number_rows", "embedding"},
                           {"radix_sort", "embedding"},
                           {"embedding", "embedding"},
                           {"::map<", "activations"},
                           {"swiglu", "activations"},
                           {"rotate_pairs", "activations"},
                           {"gelu", "activations"},
                           {"silu", "activations"},
                           {"memcpy", "copies and casts"},
                           {"memset", "copies and casts"},
                           {"copy", "copies and casts"},
                           {"convert_elements", "copies and casts"},
                           {"quantise_kernel", "copies and casts"},
                           {"measure_kernel", "copies and casts"},
                           {"update_scales_kernel", "copies and casts"},
                           {"fillfunctor", "copies and casts"}};

}  // namespace

std::string_view kernel_class(std::string_view kernel) {
  std::string lower(kernel);
  for (char& letter : lower) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  for (const Rule& rule : kRules) {
    if (lower.find(rule.part) != std::string::npos) return rule.name;
  }
  return kRest;
}

std::vector<KernelClassTime> time_by_class(const std::vector<KernelUse>& kernels) {
  std::vector<KernelClassTime> classes;
  for (const KernelUse& kernel : kernels) {
    const std::string_view name = kernel_class(kernel.name);
    auto known = std::find_if(classes.begin(), classes.end(), [&](const auto& other) { return other.name == name; });
    if (known == classes.end()) known = classes.insert(known, {std::string(name), 0});
    known->ms += kernel.us / 1000;
  }
  std::erase_if(classes, [](const KernelClassTime& one) { return !(one.ms > 0); });
  std::stable_sort(classes.begin(), classes.end(), [](const KernelClassTime& a, const KernelClassTime& b) {
    if ((a.name == kRest) != (b.name == kRest)) return b.name == kRest;
    return a.ms > b.ms;
  });
  return classes;
}

}  // namespace trireme::cli
