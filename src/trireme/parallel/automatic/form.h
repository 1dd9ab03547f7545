// How parallelize() runs a plan; for the files beside it.
#pragma once

#include <torch/torch.h>

#include <memory>

#include "trireme/parallel/automatic/parallelize.h"
#include "trireme/tensor/capture.h"

namespace trireme {

/// What the caller of parallelize() gave, and the plan that was made for it. All outlive the form.
struct FormContext {
  Communicator& comm;
  torch::nn::Module& module;
  torch::optim::Optimizer& optimizer;
  const Parallelized::Forward& forward;
  const Parallelized::Loss& loss;
  const ParallelizeOptions& options;
  const GraphPlan& plan;
};

class ParallelizedForm {
 public:
  virtual ~ParallelizedForm() = default;
  virtual double step(const torch::Tensor& input, const torch::Tensor& target) = 0;
  virtual void gather() = 0;
};

/// Stages of one device each, as replicas of a Pipeline. `input`: a batch, for its sizes.
std::unique_ptr<ParallelizedForm> make_pipeline_form(const FormContext& context, const torch::Tensor& input);

/// Stages that are a mesh each, or one mesh of all ranks. `captured`: module and loss, of a micro-batch.
std::unique_ptr<ParallelizedForm> make_mesh_form(const FormContext& context, CapturedGraph captured,
                                                 const torch::Device& device);

/// Sizes and type of `batch`, for so many samples; no data.
torch::Tensor samples_like(const torch::Tensor& batch, int64_t samples);

}  // namespace trireme
