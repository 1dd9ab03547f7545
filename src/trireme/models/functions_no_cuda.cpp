// models/functions_gpu.h in a build without CUDA: serves() is false, so nothing else is called.
#include "trireme/base/error.h"
#include "trireme/models/functions_gpu.h"

namespace trireme::ops::on_gpu {
namespace {

[[noreturn]] at::Tensor absent() { throw Error("this build has no GPU code"); }

}  // namespace

bool serves(const at::Tensor&) { return false; }
void choose_by_timing(bool) {}

at::Tensor layer_norm(const at::Tensor&, const NormParameters&) { absent(); }
at::Tensor rms_norm(const at::Tensor&, const at::Tensor&, double) { absent(); }
at::Tensor swiglu(const at::Tensor&, const at::Tensor&) { absent(); }
at::Tensor dropout(const at::Tensor&, const Philox&, uint64_t, double) { absent(); }
at::Tensor rotate(const at::Tensor&, const at::Tensor&, const at::Tensor&) { absent(); }
at::Tensor embedding(const at::Tensor&, const at::Tensor&, const at::Tensor&) { absent(); }
at::Tensor linear_cross_entropy(const at::Tensor&, const at::Tensor&, const at::Tensor&) { absent(); }
at::Tensor linear(const at::Tensor&, const at::Tensor&, const at::Tensor&) { absent(); }
at::Tensor attention(const at::Tensor&, const at::Tensor&, const at::Tensor&) { absent(); }
at::Tensor attention_block(const at::Tensor&, const NormParameters&, const LinearParameters&, const LinearParameters&,
                           int64_t) {
  absent();
}
at::Tensor mlp_block(const at::Tensor&, const NormParameters&, const LinearParameters&, const LinearParameters&) {
  absent();
}

}  // namespace trireme::ops::on_gpu
