#include "trireme/runtime/tied_weights.h"

#include "trireme/runtime/pipeline_messages.h"

namespace trireme {

void TiedWeights::send(const torch::Tensor& tensor, int to, const ParcelRoute* route, int message) const {
  if (route) return routes_->send_now(*route, tensor.to(route->options().dtype()), message);
  send_tensor(*pipeline_, tensor.to(device_), to);
}

torch::Tensor TiedWeights::receive(int from, const ParcelRoute* route, int message) const {
  return route ? routes_->receive_now(*route, message) : receive_tensor(*pipeline_, from, device_);
}

void TiedWeights::send_gradient(int number) const {
  const torch::NoGradGuard no_grad;
  const Tie& own = tie(number);
  send(own.use->gradient(), own.owner_rank, own.gradient_route.get(), 2 * number);
}

void TiedWeights::add_gradient(int number) const {
  const torch::NoGradGuard no_grad;
  const Tie& own = tie(number);
  own.owner->add_gradient(own.use ? own.use->gradient() : receive(own.use_rank, own.gradient_route.get(), 2 * number));
}

void TiedWeights::send_weight(int number) const {
  const torch::NoGradGuard no_grad;
  const Tie& own = tie(number);
  send(own.owner->weight(), own.use_rank, own.weight_route.get(), 2 * number + 1);
}

void TiedWeights::take_weight(int number) const {
  const torch::NoGradGuard no_grad;
  const Tie& own = tie(number);
  own.use->take_weight(receive(own.owner_rank, own.weight_route.get(), 2 * number + 1));
}

void TiedWeights::refresh(int own_rank) const {
  for (int number = 0; number < static_cast<int>(ties_.size()); ++number) {
    const Tie& each = tie(number);
    if (each.owner_rank == each.use_rank) continue;
    if (each.owner_rank == own_rank) send_weight(number);
    if (each.use_rank == own_rank) take_weight(number);
  }
}

}  // namespace trireme
