// A small network that is no sequence, and batches for it: the same numbers in every thread.
#pragma once

#include <torch/torch.h>

#include "trireme/tensor/capture.h"

namespace trireme {

/// No sequence: a skip connection from the first layer to the last.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    int64_t count = 1;  // the same numbers in every thread
    for (const auto& [name, linear] : {std::pair("first", first), {"up", up}, {"down", down}, {"last", last}}) {
      register_module(name, linear);
      const torch::NoGradGuard no_grad;
      for (auto& p : linear->parameters()) {
        p.copy_(torch::sin(torch::arange(p.numel()).to(torch::kFloat) * 1.7 + count++).view(p.sizes()) * 0.3);
      }
    }
    register_module("norm", norm);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const auto y = torch::tanh(first(x));
    const auto z = mark(y + down(torch::gelu(up(norm(y)))), "middle");
    return last(torch::relu(z)) + y.narrow(1, 0, 4);
  }
  torch::nn::Linear first{6, 16}, up{16, 32}, down{32, 16}, last{16, 4};
  torch::nn::LayerNorm norm{torch::nn::LayerNormOptions({16})};
};
TORCH_MODULE(Net);

inline torch::Tensor net_loss(const torch::Tensor& output, const torch::Tensor& target) {
  return torch::nn::functional::cross_entropy(output, target);
}
inline torch::Tensor input_of(int step) {
  return torch::cos(torch::arange(12 * 6).to(torch::kFloat) * (0.37 + step)).view({12, 6});
}
inline torch::Tensor target_of(int step) { return (torch::arange(12) * 7 + step) % 4; }

}  // namespace trireme
