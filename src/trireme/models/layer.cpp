#include "trireme/models/layer.h"

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/philox.h"
#include "trireme/tensor/generator_scope.h"
#include "trireme/tensor/random_scope.h"
#include "trireme/tensor/recompute.h"

namespace trireme {

Tensors Layer::run(const Tensors& x) {
  if (again_ != Again::kAll) return run_here(x);
  const auto self = std::static_pointer_cast<Layer>(shared_from_this());
  return recompute([self](const Tensors& y) { return self->run_here(y); }, x);
}

Tensors Layer::run_here(const Tensors& x) {
  if (!random_number_ || x.empty()) return forward(x);
  return inside::with_numbers_of(*random_number_, x[0].device(), [&] { return forward(x); });
}

torch::Tensor Layer::run_attention(const torch::Tensor& x,
                                   const std::function<torch::Tensor(const torch::Tensor&)>& part) {
  return again_ == Again::kAttention ? recompute(part, x) : part(x);
}

Tensors TensorLayer::forward(const Tensors& x) {
  if (x.size() != 1) throw UsageError(fmt::format("a layer of one tensor was given {}", x.size()));
  return {forward(x[0])};
}

Tensors inside::with_numbers_of(size_t number, torch::Device device, const std::function<Tensors()>& draw) {
  const RandomContext* context = RandomScope::current();
  if (!context) return draw();
  const PhiloxCounter words =
      Philox(context->seed, fmt::format("layer {}", number), context->step)(context->micro_batch);
  const GeneratorScope scope(uint64_t{words[0]} << 32 | words[1], device);
  return draw();
}

void inside::refuse_number(size_t num_tensors) {
  throw UsageError(fmt::format("a layer was given {} tensors, which is not what it takes", num_tensors),
                   "the layer before it must give as many as it takes; with Takes::kFirst, others pass by");
}

}  // namespace trireme
