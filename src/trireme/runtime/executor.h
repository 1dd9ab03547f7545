// Runs a program: the one loop behind every kind of training step.
//
// Owner: the trainer. Threads: one; communication runs beside it on the communicator's threads. Blocking: as long as
// the step takes, every wait with the communicator's timeout. Fails with what the model or the communicator throws;
// the step is then void, the weights untouched.
#pragma once

#include <torch/torch.h>

#include <functional>

#include "trireme/program/instruction.h"
#include "trireme/runtime/gradient_store.h"
#include "trireme/runtime/group_reducer.h"

namespace trireme {

/// What the instructions mean for a model.
struct StepActions {
  /// Computes micro-batch `micro_batch` (of the whole step) and returns what is differentiated. Writes to `values`
  /// what is summed over micro-batches beside the gradients: loss, counts, statistics.
  std::function<torch::Tensor(int micro_batch, torch::Tensor values)> forward;
  /// The gradients' sums lie in slot 0 of the store, those of the values in Executor::values().
  std::function<void()> optimizer_step;
};

/// Where a step's time went. Communication is counted where the step waited for it.
struct StepTimes {
  double forward_s = 0;
  double backward_s = 0;
  double communication_s = 0;
  double optimizer_s = 0;
};

class Executor {
 public:
  /// The program's last group holds `num_values` values; the others are the groups of `store`.
  Executor(Program program, GradientStore& store, Communicator* comm, int64_t num_values,
           torch::ScalarType travel_type = torch::kFloat32, bool overlap = true);

  StepTimes run(const StepActions& actions);
  /// The step once more without communication and without the optimizer: to find out who computed what.
  void replay(const StepActions& actions);

  torch::Tensor values() const { return values_[0]; }
  const Program& program() const { return program_; }
  GroupReducer& reducer() { return reducer_; }

 private:
  void execute(const StepActions& actions, bool alone);
  void run_backward(size_t at, const torch::Tensor& loss);
  void run_group_instruction(const Instruction& instruction);
  size_t end_of_group_instructions(size_t after) const;
  std::vector<torch::Tensor> slots_of(int group) const;
  bool is_values(int group) const { return group == program_.num_groups - 1; }

  const Program program_;
  GradientStore& store_;
  GroupReducer reducer_;
  const bool overlap_;
  std::vector<torch::Tensor> values_;  ///< one for each slot
  torch::Tensor micro_batch_values_;
  bool alone_ = false;
  StepTimes times_;
};

}  // namespace trireme
