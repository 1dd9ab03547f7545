// Trains any module on all ranks with a layout chosen by the planner, in one line, as Alpa does.
//
//   auto training = parallelize(world, model, loss, optimizer);      // {.plan = "auto"}; also takes world.comm()
//   for (…) double value = training->step(x, y);                     // the whole batch, the same on all ranks
//   training->gather();                                              // the module is whole again on every rank
//
// The first step() captures module and loss, plans for the sizes that it sees, and distributes the parameters: as
// operators sharded over a mesh of all ranks, exactly as planned, or as a pipeline of stages that are each a mesh.
// Results equal those of one worker except for the order of sums.
//
// Owner: the caller, who destroys it before the communicator, and keeps the module, loss and optimizer alive until
// then. The optimizer's parameters must be the module's. Threads: one. Blocking: the constructor, step() and gather(),
// which all ranks call with the same arguments, every wait with the communicator's timeout. Fails with UsageError, with
// Error for a module that cannot be captured or fits nowhere, and with CommError.
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
  /// "auto"; a file that `write_plan` has written ("plan.json", which rank 0 reads); or a layout: "mesh 2x2", "pipeline
  /// 2x1x4", "stages 1x2+2 in 4" (GraphLayout).
  std::string plan = "auto";
  std::string write_plan = "";    ///< file that rank 0 writes the plan to, see docs/parallelize.md; empty: none
  std::string cluster = "";       ///< preset or file; empty: $TRIREME_CLUSTER, or this machine
  double limit_bytes = 0;         ///< memory limit of a worker; 0: what the cluster's devices have
  std::string schedule = "1f1b";  ///< schedule of a pipeline; must be synchronous
  uint64_t seed = 0;              ///< seed of dropout
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

  /// Runs forward, backward and update for a batch. Returns the loss, a mean over samples. Every step must have the
  /// same sizes.
  double step(const torch::Tensor& input, const torch::Tensor& target);
  /// Makes parameters whole, plain tensors on every rank until the next step: to evaluate, or to save.
  void gather();

  /// The layout, with its predicted time and memory; empty before the first step.
  const GraphPlan& plan() const { return report_.plan; }
  const GraphPlanReport& report() const { return report_; }
  /// A report as text: the layout, its stages, the placement of parameters, and the runners-up.
  std::string describe() const;

 private:
  void prepare(const torch::Tensor& input, const torch::Tensor& target);

  Communicator& comm_;
  std::shared_ptr<torch::nn::Module> module_;
  const Forward forward_;
  const Loss loss_;
  torch::optim::Optimizer& optimizer_;
  const ParallelizeOptions options_;
  std::optional<GraphPlanFile> file_;  ///< file of the plan, if options_.plan names one
  GraphPlanReport report_;
  std::vector<std::string> planned_for_;  ///< sizes and dtypes of input and target of the first step
  std::unique_ptr<ParallelizedForm> form_;
};

/// For a module holder (TORCH_MODULE) or a shared pointer whose forward() takes a tensor and returns one.
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

/// The same over all ranks of a world, which must outlive it.
template <typename Model>
std::unique_ptr<Parallelized> parallelize(World& world, Model model, Parallelized::Loss loss,
                                          torch::optim::Optimizer& optimizer, ParallelizeOptions options = {}) {
  return parallelize(world.comm(), std::move(model), std::move(loss), optimizer, std::move(options));
}

}  // namespace trireme
