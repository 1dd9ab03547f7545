// Matmuls of a model's blocks in 8 bits on a GPU: e4m3 for activations and weights, e5m2 for gradients, each matrix
// with a scale that follows its largest absolute values of recent steps.
//
// Everything else stays in bfloat16: norms, attention, the residual sum, the output layer. Scales and 8-bit weights
// stay at fixed addresses in GPU memory, so that a step can be captured as a graph. A matrix that was never seen is
// measured before it is quantised, so the first step has correct scales, too. Owner: the engine. Threads: one per step;
// the backward may run on autograd's thread. In a build without CUDA the constructor throws.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>

#include "trireme/models/model.h"

namespace trireme {

class Fp8Products {
 public:
  /// Covers the linear layers in the model's numbered layers whose sizes are multiples of 16; parameters must be on a
  /// GPU, in bfloat16, and stay where they are. Throws UsageError if the GPU has no 8-bit matmuls or no layer fits.
  explicit Fp8Products(const Model& model);
  ~Fp8Products();
  Fp8Products(const Fp8Products&) = delete;

  /// Enqueues the 8-bit copies of the weights; call it once per step, before the first forward.
  void copy_weights();
  /// Enqueues the computation of the next step's scales; call it after the last backward. `largest_over_ranks`, if
  /// given, takes the maximum of each number (int32) over ranks, so that scales are the same on all.
  void update_scales(const std::function<void(at::Tensor&)>& largest_over_ranks = {});

  /// The scales as text, so that a resumed run continues exactly.
  std::string state() const;
  /// Returns false, with scales as at the start, if the text belongs to another model.
  bool restore(const std::string& state);
  size_t num_bytes() const;

 private:
  friend class Fp8Scope;
  struct Inside;
  std::unique_ptr<Inside> inside_;
};

/// While it lives, operators with these weights multiply in 8 bits, on all threads, since backward has its own.
class Fp8Scope {
 public:
  explicit Fp8Scope(Fp8Products* products);  ///< null: no effect
  ~Fp8Scope();
  Fp8Scope(const Fp8Scope&) = delete;

 private:
  Fp8Products* products_;
};

}  // namespace trireme
