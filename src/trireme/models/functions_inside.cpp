#include "trireme/models/functions_inside.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "trireme/base/error.h"
#include "trireme/models/functions_gpu.h"

namespace trireme::ops {
namespace {

std::atomic<bool> plain_only = false;
std::atomic<bool> deterministic = true;

bool is_ours(const at::Tensor& x) {
  return !x.defined() || (x.is_cpu() && x.scalar_type() == at::kFloat && x.layout() == at::kStrided);
}

}  // namespace

void use_plain(bool plain) { plain_only = plain; }
bool plain_wanted() { return plain_only; }
void set_deterministic(bool on) {
  deterministic = on;
  on_gpu::choose_by_timing(!on);
}
bool is_deterministic() { return deterministic; }

const model_kernels::Kernels* kernels_for(std::initializer_list<at::Tensor> tensors) {
  // Compiled without OpenMP, at::parallel_for is a plain call here, while libtorch's own operators use all threads.
  if (plain_only || at::get_num_threads() > 1 || !std::all_of(tensors.begin(), tensors.end(), is_ours)) return nullptr;
  return model_kernels::best();
}

bool wants_gradient(std::initializer_list<at::Tensor> tensors) {
  return at::GradMode::is_enabled() && std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor& x) {
           return x.defined() && x.requires_grad();
         });
}

void demand_first_order(std::string_view name) {
  if (!at::GradMode::is_enabled()) return;
  throw Error(fmt::format("the gradient of {} has no gradient of its own", name),
              "call backward without create_graph, or ops::use_plain(true) before the forward");
}

}  // namespace trireme::ops
