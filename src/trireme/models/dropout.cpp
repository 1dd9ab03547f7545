#include "trireme/models/dropout.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <span>

#include "trireme/base/error.h"
#include "trireme/base/philox.h"
#include "trireme/models/functions_gpu.h"
#include "trireme/tensor/random_scope.h"

namespace trireme {

Dropout::Dropout(double p, std::string name) : p_(p), name_(std::move(name)) {
  if (!(p >= 0 && p < 1)) throw UsageError(fmt::format("model.dropout = {} is not in [0, 1)", p));
}

torch::Tensor Dropout::forward(const torch::Tensor& x) const {
  if (!is_active()) return x;
  const RandomContext* context = RandomScope::current();
  if (!context) {
    throw Error(fmt::format("dropout of {} has no random numbers to draw from", name_),
                "make a RandomScope before the forward, or call eval() on the model");
  }
  const Philox numbers(context->seed, name_, context->step);
  const uint64_t first = context->micro_batch * static_cast<uint64_t>(x.numel());
  if (ops::on_gpu::serves(x)) return ops::on_gpu::dropout(x, numbers, first, p_);
  auto mask = at::empty(x.sizes(), torch::kFloat32);
  const std::span values(mask.mutable_data_ptr<float>(), static_cast<size_t>(mask.numel()));
  numbers.fill_uniform(values, first);
  const auto p = static_cast<float>(p_), scale = static_cast<float>(1 / (1 - p_));
  for (float& value : values) value = value < p ? 0 : scale;
  return x * mask.to(x.options());
}

}  // namespace trireme
