// Modules for building models. Unlike those of torch::nn they neither draw random numbers nor allocate memory when they
// are built: initialize() (models/model.h) or the runtime allocates and fills all parameters.
#pragma once

#include <torch/nn/module.h>

#include "trireme/models/functions.h"

namespace trireme {

/// A parameter that has a shape but no memory.
torch::Tensor unset(at::IntArrayRef sizes);

/// x · weightᵀ + bias; weight is [out, in].
class Linear : public torch::nn::Module {
 public:
  Linear(int64_t in, int64_t out, bool with_bias) : weight(register_parameter("weight", unset({out, in}))) {
    if (with_bias) bias = register_parameter("bias", unset({out}));
  }
  torch::Tensor forward(const torch::Tensor& x) const { return ops::linear(x, weight, bias); }
  ops::LinearParameters operands() const { return {weight, bias}; }
  torch::Tensor weight, bias;
};

/// Looks up rows of weight [count, width].
class Embedding : public torch::nn::Module {
 public:
  Embedding(int64_t count, int64_t width) : weight(register_parameter("weight", unset({count, width}))) {}
  torch::Tensor forward(const torch::Tensor& index) const { return ops::embedding(index, weight); }
  torch::Tensor weight;
};

class LayerNorm : public torch::nn::Module {
 public:
  LayerNorm(int64_t width, double eps)
      : weight(register_parameter("weight", unset({width}))),
        bias(register_parameter("bias", unset({width}))),
        eps_(eps) {}
  torch::Tensor forward(const torch::Tensor& x) const { return ops::layer_norm(x, weight, bias, eps_); }
  ops::NormParameters operands() const { return {weight, bias, eps_}; }
  torch::Tensor weight, bias;

 private:
  double eps_;
};

class RmsNorm : public torch::nn::Module {
 public:
  RmsNorm(int64_t width, double eps) : weight(register_parameter("weight", unset({width}))), eps_(eps) {}
  torch::Tensor forward(const torch::Tensor& x) const { return ops::rms_norm(x, weight, eps_); }
  torch::Tensor weight;

 private:
  double eps_;
};

}  // namespace trireme
