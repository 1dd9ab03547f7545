// The ways in which parallelize() runs a plan. Internal to this folder.
#pragma once

#include <torch/torch.h>

#include <memory>

#include "trireme/parallel/automatic/parallelize.h"
#include "trireme/tensor/capture.h"

namespace trireme {

/// Arguments of parallelize(), and the plan made for them. All must outlive the form.
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

/// Stages of one device each, as a Pipeline with replicas. `input`: a batch, for its sizes.
std::unique_ptr<ParallelizedForm> make_pipeline_form(const FormContext& context, const torch::Tensor& input);

/// Stages that are each a mesh, or one mesh of all ranks. `captured`: module and loss for one micro-batch.
std::unique_ptr<ParallelizedForm> make_mesh_form(const FormContext& context, CapturedGraph captured,
                                                 const torch::Device& device);

/// A tensor without data, with the dtype of `batch` and its sizes for so many samples.
torch::Tensor samples_like(const torch::Tensor& batch, int64_t samples);

}  // namespace trireme
