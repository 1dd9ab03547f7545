// Runs one rank's program of a pipeline: forward and backward passes of its stages, messages to its neighbours, sums
// over micro-batches and replicas.
//
//   messages ──▶ stage ──▶ messages        one thread of control, from instruction to instruction;
//      ▲           │                       messages and sums go on beside it
//      └─ buffers  └──▶ slots ──▶ sums over replicas
//
// Owner: Pipeline, or a trainer. Threads: one. Blocking: as long as the step takes, every wait with the communicator's
// timeout. Fails with what stages or communicators throw, with rank, instruction, stage and micro-batch before it; the
// step is then void, and the executor with it: destroy the communicators before it, for messages may be under way.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "trireme/program/instruction.h"
#include "trireme/runtime/gradient_store.h"
#include "trireme/runtime/group_reducer.h"
#include "trireme/runtime/pipeline_messages.h"
#include "trireme/runtime/split_backward.h"

namespace trireme {

struct PipelineStage {
  /// The same bits whenever it is called with the same input and micro-batch.
  std::function<torch::Tensor(const torch::Tensor& x, int micro_batch)> forward;
  GradientStore* store = nullptr;           ///< of its parameters; null: it has none
  std::vector<torch::Tensor> buffers = {};  ///< what a forward pass may change, such as moving averages
};

/// What the two ends of a pipeline, and its last instruction, mean. Micro-batches are those of the whole step.
struct PipelineActions {
  std::function<torch::Tensor(int micro_batch)> input;                              ///< of the first stage
  std::function<torch::Tensor(int micro_batch, const torch::Tensor& output)> loss;  ///< after the last stage: a scalar
  std::function<void()> optimizer_step;  ///< the gradients' sums lie in slot 0 of each store
};

class PipelineExecutor {
 public:
  /// `stages`: those of this rank, by number. `replicas` may be null where there is one. Throws UsageError for a
  /// program with several updates, and Error for one that was written for other stages.
  PipelineExecutor(Program program, std::map<int, PipelineStage> stages, Communicator& pipeline, Communicator* replicas,
                   torch::Device device);

  /// Returns the losses of this replica's micro-batches, in their order; empty without the last stage.
  std::vector<double> run(const PipelineActions& actions);

  const Program& program() const { return program_; }
  GroupReducer& reducer() { return reducer_; }
  const PipelineMessages& messages() const { return messages_; }

 private:
  using Place = std::pair<int, int>;  ///< stage, micro-batch
  /// A micro-batch in a stage, from its forward pass until its weight gradients are made.
  struct Work {
    torch::Tensor input;
    torch::Tensor output;         ///< with its graph; of the last stage, the loss
    torch::Tensor random_before;  ///< state of libtorch's random numbers, where the forward pass used them
    std::unique_ptr<SplitBackward> split;
  };

  void run_instruction(size_t& at, const PipelineActions& actions);
  void run_forward(const Instruction& instruction, const PipelineActions& actions);
  torch::Tensor compute(const Instruction& instruction, Work& work, const PipelineActions& actions);
  void recompute(const Instruction& instruction, const PipelineActions& actions);
  void run_backward(size_t at);
  void run_backward_input(const Instruction& instruction);
  void run_weight_grad(size_t at);
  void fill_slot(size_t at, const std::function<void()>& backward);
  void run_group_instruction(const Instruction& instruction);
  size_t end_of_group_instructions(size_t after) const;
  torch::Tensor take(const PipelineMessage& message);
  void give_input_gradient(const Instruction& instruction, const torch::Tensor& input, torch::Tensor gradient);
  void check_form(const Instruction& instruction, const torch::Tensor& output);
  bool is_last(int stage) const { return stage == program_.num_stages() - 1; }

  const Program program_;
  std::map<int, PipelineStage> stages_;
  const int rank_;
  const torch::Device device_;
  PipelineMessages messages_;
  GroupReducer reducer_;
  std::map<int, int> first_group_;     ///< of each stage, numbered through the rank
  std::set<Place> recomputed_;         ///< forward passes that keep nothing
  std::map<int, TensorForm> outputs_;  ///< what each stage gives

  // Of the step under way.
  std::map<Place, Work> works_;
  std::map<PipelineMessage, torch::Tensor> made_;  ///< to be sent, or to be used on this rank
  std::map<int, torch::Tensor> losses_;            ///< by micro-batch
};

}  // namespace trireme
