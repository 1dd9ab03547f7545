// Runs one rank's program: the one loop behind every kind of training step.
//
//   messages ──▶ stage ──▶ messages        one thread of control, from instruction to instruction;
//      ▲           │                       messages and sums go on beside it
//      └─ buffers  └──▶ slots ──▶ sums over replicas
//
// Owner: the trainer, or Pipeline. Threads: one; communication runs beside it on the communicators' threads. Blocking:
// as long as the step takes, every wait with the communicator's timeout. Fails with what stages or communicators throw,
// in a pipeline with rank, instruction, stage and micro-batch before it. The step is then void, the weights untouched
// unless the program has several updates. After a failure in a pipeline destroy the communicators before the executor,
// for messages may be under way.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "trireme/program/instruction.h"
#include "trireme/program/stream.h"
#include "trireme/program/trace.h"
#include "trireme/runtime/gradient_store.h"
#include "trireme/runtime/group_reducer.h"
#include "trireme/runtime/layer_weights.h"
#include "trireme/runtime/pipeline_messages.h"
#include "trireme/runtime/split_backward.h"
#include "trireme/runtime/tied_weights.h"

namespace trireme {

/// What this rank computes: a stage of a pipeline, or the whole model, whose number is -1.
struct Stage {
  /// Computes a micro-batch (of the whole step). `x` is what the stage before has given; the first finds its inputs
  /// itself. Returns what the next gets; of the last, a scalar: what is differentiated. Writes to `values` what is
  /// summed over micro-batches beside the gradients. The same bits whenever it is called with the same arguments.
  std::function<Tensors(const Tensors& x, int micro_batch, torch::Tensor values)> forward;
  GradientStore* store = nullptr;           ///< of its parameters; null: it has none
  int64_t num_values = 0;                   ///< they travel in a group of their own, behind those of the store
  std::vector<torch::Tensor> buffers = {};  ///< what a forward pass may change, such as moving averages
  LayerWeights* weights = nullptr;          ///< null: they are always there
};

/// Where a step's time went. Communication is counted where the step waited for it.
struct StepTimes {
  double forward_s = 0;
  double backward_s = 0;
  double messages_s = 0;       ///< for activations and gradients of other stages: bubbles and transfers
  double communication_s = 0;  ///< for the sums over replicas
  double optimizer_s = 0;
};

struct ExecutorOptions {
  Communicator* replicas = nullptr;     ///< may be null where there is one
  Communicator* pipeline = nullptr;     ///< along the stages; null without a pipeline
  StageMessages* messages = nullptr;    ///< instead of plain ones along `pipeline`; the caller's
  Communicator* shard_group = nullptr;  ///< replicas that hold the shards; null: nothing is sharded
  Communicator* copies = nullptr;       ///< ranks with the same shard in other groups; null: one group
  const TiedWeights* tied = nullptr;    ///< null: the programs have none; the caller's
  torch::Device device{torch::kCPU};
  torch::ScalarType travel_type = torch::kFloat32;  ///< of gradients
  bool overlap = true;                              ///< sums begin while the backward pass goes on
};

class Executor {
 public:
  /// `stages`: those of this rank, by number. Throws Error for a program that was written for other stages.
  Executor(Program program, std::map<int, Stage> stages, const ExecutorOptions& options);

  /// Push, Combine, Norm, OptimizerStep, Pull and Meet are the caller's: gradients' sums lie in slot 0 of the stores,
  /// those of the values in values(). A Push may come while the backward pass goes on.
  using Update = std::function<void(const Instruction& instruction)>;
  StepTimes run(const Update& update);
  /// Runs a stream of the executor's stages with so many rounds ([Note: Streams]); then the pipeline is empty again.
  StepTimes run(const Stream& stream, int rounds, const Update& update);
  /// The step once more without sums over replicas and without the update: to find out who computed what. May be called
  /// by an update.
  void replay();
  /// Runs a program of forward passes, between steps. `pass` computes a micro-batch in a stage, from what the stage
  /// before has given (the first finds its inputs itself), and returns what the next one gets. `messages`: in any
  /// shapes; null without a pipeline.
  using Pass = std::function<Tensors(int stage, const Tensors& x, int micro_batch)>;
  void run_passes(const Program& program, StageMessages* messages, const Pass& pass);
  /// From the next run on. It has the stages, slots and sums of the one before, and another end.
  void set_program(const Program& program);

  /// For errors and records: the number of the step to come.
  void set_step(uint64_t step) {
    step_ = step;
    reducer_.set_step(step);
  }
  /// Of the instruction under way; -1 where it has none.
  int micro_batch() const { return micro_batch_; }
  /// From the next run on: when each instruction ran. On a GPU every instruction is then waited for.
  void set_tracing(bool on) { tracing_ = on; }
  /// Of the last run that was traced.
  const std::vector<InstructionTimes>& trace() const { return trace_; }
  torch::Tensor values(int stage) const { return values_.at(stage)[0]; }
  const Program& program() const { return program_; }
  GroupReducer& reducer() { return reducer_; }
  /// What lies in each group of the reducer, in the order of their numbers; values are one tensor.
  std::vector<GroupLayout> group_layouts() const;
  /// Null without a pipeline.
  const PipelineMessages* messages() const { return plain_messages_ ? &*plain_messages_ : nullptr; }

 private:
  using Place = std::pair<int, int>;  ///< stage, micro-batch
  /// A micro-batch in a stage, from its forward pass until its weight gradients are made.
  struct Work {
    Tensors inputs;
    Tensors outputs;              ///< with their graph; of the last stage, the loss
    torch::Tensor values;         ///< of this micro-batch
    torch::Tensor random_before;  ///< state of libtorch's random numbers, where the forward pass used them
    std::unique_ptr<SplitBackward> split;
  };
  /// Weights of a stage as they were.
  using Stash = std::vector<torch::Tensor>;
  class OldWeights;

  void take_program(Program program);
  void execute(bool alone, const std::function<void()>& lists);
  void run_list(size_t begin, size_t end);
  /// Instruction `at` of the program, with the numbers of the round under way.
  Instruction instruction_at(size_t at) const;
  void run_instruction(size_t& at);
  void send(const Instruction& instruction, int peer, StageMessages& messages);
  void run_forward(const Instruction& instruction);
  Tensors compute(const Instruction& instruction, const Tensors& inputs, const torch::Tensor& values);
  void recompute(const Instruction& instruction);
  void run_backward(size_t at);
  void run_backward_input(const Instruction& instruction);
  void run_weight_grad(size_t at);
  void fill_slot(size_t at, const torch::Tensor& values, const std::function<void()>& backward);
  void run_group_instruction(const Instruction& instruction);
  void scatter_group(const Instruction& instruction);
  void finish_sums();
  void run_update(const Instruction& instruction);
  void run_tied(const Instruction& instruction);
  void stash(const Instruction& instruction);
  Tensors take(const PipelineMessage& message, StageMessages* messages);
  Tensors take_output_gradients(const Instruction& instruction);
  void give_input_gradients(const Instruction& instruction, const Tensors& inputs, const Tensors& gradients);
  void check_forms(const Instruction& instruction, const Tensors& outputs);
  bool is_last(int stage) const { return stage < 0 || stage == program_.num_stages() - 1; }
  bool is_values(int stage, int group) const;
  bool is_scattered(int stage, int group) const;

  Program program_;
  const std::map<int, Stage> stages_;
  const torch::Device device_;
  const bool overlap_;
  Communicator *const shard_group_, *const copies_;
  const TiedWeights* const tied_;
  bool tracing_ = false;
  std::vector<InstructionTimes> trace_;
  std::optional<PipelineMessages> plain_messages_;
  StageMessages* messages_ = nullptr;
  GroupReducer reducer_;
  std::map<int, std::vector<torch::Tensor>> values_;  ///< of each stage, one for each slot
  std::map<int, int> first_group_;                    ///< of each stage, numbered through the rank
  std::set<Place> recomputed_;                        ///< forward passes that keep nothing
  std::map<int, TensorForms> outputs_;                ///< what each stage gives

  // Of the step under way.
  uint64_t step_ = 0;
  bool alone_ = false;
  const Update* update_ = nullptr;
  int micro_batch_ = -1;
  const Stream* stream_ = nullptr;  ///< null in a program with an end
  int round_ = 0;                   ///< of the stream: rounds before the one under way
  double ready_ = 0;                ///< when the instruction under way had its message
  StepTimes times_;
  std::map<Place, Work> works_;
  std::map<PipelineMessage, Tensors> made_;       ///< to be sent, or to be used on this rank
  std::map<std::pair<int, int>, Stash> stashed_;  ///< by stage and version
  std::map<int, int> restored_;                   ///< of a stage: the version that its next computation uses
};

}  // namespace trireme
