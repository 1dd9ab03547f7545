// Matrix products of a model's blocks in 8 bits on a GPU: e4m3 for values and weights, e5m2 for gradients, each matrix
// with a scale that follows the largest values of the last steps.
//
// Everything else stays in bfloat16: norms, attention, the residual sum, the output layer. Scales and 8-bit weights lie
// in GPU memory at fixed places, so that a step can be captured as a graph. A matrix that was never seen is measured
// before it is quantised, so that the first step has right scales too. Owner: the trainer. Threads: one a step; the
// backward may run on autograd's thread. In a build without CUDA it cannot be made.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>

#include "trireme/models/model.h"

namespace trireme {

class Fp8Products {
 public:
  /// For the linear layers in the model's numbered layers whose sizes are multiples of 16; parameters are on a GPU, in
  /// bfloat16, and stay where they are. Throws UsageError where the GPU has no such products, or no layer fits.
  explicit Fp8Products(const Model& model);
  ~Fp8Products();
  Fp8Products(const Fp8Products&) = delete;

  /// Enqueues the copies of the weights, once a step, before the first forward.
  void copy_weights();
  /// Enqueues the scales of the next step, after the last backward. `largest_over_ranks`, where given, takes the
  /// maximum of each number (int32) over ranks: scales are then the same on all.
  void update_scales(const std::function<void(at::Tensor&)>& largest_over_ranks = {});

  /// The scales as text: they belong to a run that goes on exactly.
  std::string state() const;
  /// False where the text is of another model; scales are then as at the start.
  bool restore(const std::string& state);
  size_t num_bytes() const;

 private:
  friend class Fp8Scope;
  struct Inside;
  std::unique_ptr<Inside> inside_;
};

/// While it lives, operators with these weights multiply in 8 bits; on all threads, for the backward has its own.
class Fp8Scope {
 public:
  explicit Fp8Scope(Fp8Products* products);  ///< null: nothing changes
  ~Fp8Scope();
  Fp8Scope(const Fp8Scope&) = delete;

 private:
  Fp8Products* products_;
};

}  // namespace trireme
