// Trains any module on all ranks, laid out by the planner: one line, as Alpa has it.
//
//   auto training = parallelize(world, model, loss, optimizer);      // {.plan = "auto"}; world.comm() does as well
//   for (…) double value = training->step(x, y);                     // the whole batch, the same on all ranks
//   training->gather();                                              // the module is whole again on every rank
//
// The first step() captures module and loss, plans for the sizes that it sees, and lays the parameters out: operators
// cut over a mesh of all ranks, exactly as planned, or a pipeline of stages that are a mesh each. The numbers are those
// of one worker but for the order of sums.
//
// Owner: the caller; it must be destroyed before the communicator, and the module, loss and optimizer must live as
// long. The optimizer's parameters are the module's. Threads: one. Blocking: step() and gather(), which all ranks call
// with the same arguments, every wait with the communicator's timeout. Fails with UsageError, with Error for a module
// that cannot be captured or fits nowhere, and CommError.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/world.h"
#include "trireme/plan/graph/graph_plan_file.h"

namespace trireme {

struct ParallelizeOptions {
  /// Or a file that `write_plan` has written ("plan.json", which rank 0 reads), or a layout: "mesh 2x2",
  /// "pipeline 2x1x4", "stages 1x2+2 in 4" (GraphLayout).
  std::string plan = "auto";
  std::string write_plan = "";    ///< a file for the plan, which rank 0 writes: docs/parallelize.md
  std::string cluster = "";       ///< a preset or a file; empty: $TRIREME_CLUSTER, or this machine
  double limit_bytes = 0;         ///< of a worker; 0: what the cluster's devices have
  std::string schedule = "1f1b";  ///< of a pipeline, synchronous
  uint64_t seed = 0;              ///< of dropout
};

class ParallelizedForm;

class Parallelized {
 public:
  using Forward = std::function<torch::Tensor(const torch::Tensor& input)>;
  using Loss = std::function<torch::Tensor(const torch::Tensor& output, const torch::Tensor& target)>;

  Parallelized(Communicator& comm, std::shared_ptr<torch::nn::Module> module, Forward forward, Loss loss,
               torch::optim::Optimizer& optimizer, ParallelizeOptions options);
  ~Parallelized();
  Parallelized(const Parallelized&) = delete;

  /// Forward, backward and update for a batch. Returns the loss, a mean over samples. Every step has the same sizes.
  double step(const torch::Tensor& input, const torch::Tensor& target);
  /// Parameters are whole and plain on every rank until the next step: to evaluate, or to save.
  void gather();

  /// The layout with what it is predicted to take; empty before the first step.
  const GraphPlan& plan() const { return report_.plan; }
  const GraphPlanReport& report() const { return report_; }
  /// A table: the layout, how parameters lie in it, the runners-up.
  std::string describe() const;

 private:
  void prepare(const torch::Tensor& input, const torch::Tensor& target);

  Communicator& comm_;
  std::shared_ptr<torch::nn::Module> module_;
  const Forward forward_;
  const Loss loss_;
  torch::optim::Optimizer& optimizer_;
  const ParallelizeOptions options_;
  std::optional<GraphPlanFile> file_;  ///< that the plan comes from
  GraphPlanReport report_;
  std::vector<std::string> planned_for_;  ///< input and target of the first step
  std::unique_ptr<ParallelizedForm> form_;
};

/// For a module holder (TORCH_MODULE) or a shared pointer whose forward() takes a tensor and gives one.
template <typename Model>
std::unique_ptr<Parallelized> parallelize(Communicator& comm, Model model, Parallelized::Loss loss,
                                          torch::optim::Optimizer& optimizer, ParallelizeOptions options = {}) {
  std::shared_ptr<torch::nn::Module> module;
  if constexpr (requires { model.ptr(); }) {
    module = model.ptr();
  } else {
    module = model;
  }
  return std::make_unique<Parallelized>(
      comm, std::move(module), [model](const torch::Tensor& x) mutable { return model->forward(x); }, std::move(loss),
      optimizer, std::move(options));
}

/// Over all ranks of a world, which must outlive it.
template <typename Model>
std::unique_ptr<Parallelized> parallelize(World& world, Model model, Parallelized::Loss loss,
                                          torch::optim::Optimizer& optimizer, ParallelizeOptions options = {}) {
  return parallelize(world.comm(), std::move(model), std::move(loss), optimizer, std::move(options));
}

}  // namespace trireme
