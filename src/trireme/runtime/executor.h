// Runs one rank's program: the one loop behind every kind of training step.
//
//   messages ──▶ stage ──▶ messages        one thread of control, from instruction to instruction;
//      ▲           │                       messages and sums run in the background
//      └─ buffers  └──▶ slots ──▶ sums over replicas
//
// Owner: StepEngine. Threads: one; communication runs on the communicators' threads. Blocking: as long as the step
// takes, every wait with the communicator's timeout. Fails with what stages or communicators throw; in a pipeline, the
// message starts with rank, instruction, stage and micro-batch. The step is then void, and the weights are unchanged
// unless the program has several updates. After a failure in a pipeline, destroy the communicators before the executor,
// since messages may be in flight.
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

/// What this rank computes: a stage of a pipeline, or the whole model as number -1.
struct Stage {
  /// Computes a micro-batch, numbered over the whole step. `x` is the previous stage's output; the first stage finds
  /// its inputs itself. Returns what the next stage gets; the last stage returns a scalar, which is differentiated.
  /// Writes to `values` what is summed over micro-batches along with the gradients. Must give the same bits whenever it
  /// is called with the same arguments.
  std::function<Tensors(const Tensors& x, int micro_batch, torch::Tensor values)> forward;
  GradientStore* store = nullptr;  ///< gradients of its parameters; null: it has none
  int64_t num_values = 0;          ///< length of `values`, which are reduced as one more group after those of the store
  std::vector<torch::Tensor> buffers = {};  ///< tensors that a forward pass may change, such as moving averages
  LayerWeights* weights = nullptr;          ///< null: nothing is sharded
};

/// Where a step's time went. Communication only counts while the step waits for it.
struct StepTimes {
  double forward_s = 0;
  double backward_s = 0;
  double messages_s = 0;       ///< waits for activations and gradients of other stages: bubbles and transfers
  double communication_s = 0;  ///< waits for the sums over replicas
  double optimizer_s = 0;
};

struct ExecutorOptions {
  Communicator* replicas = nullptr;     ///< may be null if there is only one
  Communicator* pipeline = nullptr;     ///< ranks of all stages; null without a pipeline, or with `messages`
  StageMessages* messages = nullptr;    ///< only used if `pipeline` is null; not owned
  Communicator* shard_group = nullptr;  ///< ranks that hold the shards; null: nothing is sharded
  Communicator* copies = nullptr;       ///< ranks with the same shard in other shard groups; null: one group
  const TiedWeights* tied = nullptr;    ///< null: the programs have no tied weights; not owned
  torch::Device device{torch::kCPU};
  torch::ScalarType travel_type = torch::kFloat32;  ///< dtype in which gradients are sent
  bool overlap = true;                              ///< whether sums start during the backward pass
};

class Executor {
 public:
  /// `stages`: this rank's stages, by number. Throws Error if the program was written for other stages.
  Executor(Program program, std::map<int, Stage> stages, const ExecutorOptions& options);

  /// Carries out Push, Combine, Norm, OptimizerStep, Pull and Meet. Sums of gradients are in slot 0 of the stores, sums
  /// of values in values(). A Push may come during the backward pass.
  using Update = std::function<void(const Instruction& instruction)>;
  StepTimes run(const Update& update);
  /// Runs a stream of the executor's stages with so many rounds ([Note: Streams]); afterwards the pipeline is empty
  /// again.
  StepTimes run(const Stream& stream, int rounds, const Update& update);
  /// Repeats the step without sums over replicas and without the update, to find out who computed what. An update may
  /// call it.
  void replay();
  /// Runs a program of forward passes, between steps. `pass` computes a micro-batch in a stage from the previous
  /// stage's output (the first stage finds its inputs itself), and returns what the next stage gets. `messages` must
  /// accept any shapes; null without a pipeline.
  using Pass = std::function<Tensors(int stage, const Tensors& x, int micro_batch)>;
  void run_passes(const Program& program, StageMessages* messages, const Pass& pass);
  /// Sets the program from the next run on: one with the same stages, slots and sums, and another end. Throws Error
  /// otherwise.
  void set_program(const Program& program);

  /// Sets the number of the step to come, for errors, records and the compressor.
  void set_step(uint64_t step) {
    step_ = step;
    reducer_.set_step(step);
  }
  /// Micro-batch of the current instruction; -1 if it has none.
  int micro_batch() const { return micro_batch_; }
  /// Records when each instruction ran, from the next run on. On a GPU, every instruction then waits for the device.
  void set_tracing(bool on) { tracing_ = on; }
  /// Times of the last traced run, one per instruction; for the round of a stream, those of the last one.
  const std::vector<InstructionTimes>& trace() const { return trace_; }
  torch::Tensor values(int stage) const { return values_.at(stage)[0]; }
  const Program& program() const { return program_; }
  GroupReducer& reducer() { return reducer_; }
  /// Layouts of the reducer's groups, in the order of their numbers; a stage's values are one tensor.
  std::vector<GroupLayout> group_layouts() const;
  /// Null without ExecutorOptions::pipeline.
  const PipelineMessages* messages() const { return plain_messages_ ? &*plain_messages_ : nullptr; }

 private:
  using Place = std::pair<int, int>;  ///< stage, micro-batch
  /// State of a micro-batch in a stage, from its forward pass until its weight gradients are done.
  struct Work {
    Tensors inputs;
    Tensors outputs;              ///< outputs with their graph; the loss in the last stage
    torch::Tensor values;         ///< values of this micro-batch
    torch::Tensor random_before;  ///< random state, if the forward pass drew random numbers
    std::unique_ptr<SplitBackward> split;
  };
  /// A copy of a stage's weights.
  using Stash = std::vector<torch::Tensor>;
  class OldWeights;

  void take_program(Program program);
  void execute(bool alone, const std::function<void()>& lists);
  void run_list(size_t begin, size_t end);
  /// Instruction `at` of the program, with the numbers of the current round.
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
  std::map<int, std::vector<torch::Tensor>> values_;  ///< keyed by stage, one per slot
  std::map<int, int> first_group_;                    ///< keyed by stage: its first group among all groups of the rank
  std::set<Place> recomputed_;                        ///< micro-batches whose activations are recomputed
  std::map<int, TensorForms> outputs_;                ///< keyed by stage: forms of its outputs

  // State of the current step.
  uint64_t step_ = 0;
  bool alone_ = false;
  const Update* update_ = nullptr;
  int micro_batch_ = -1;
  const Stream* stream_ = nullptr;  ///< null outside of a stream
  int round_ = 0;                   ///< rounds of the stream before the current one
  double ready_ = 0;                ///< when the current instruction had its message
  StepTimes times_;
  std::map<Place, Work> works_;
  std::map<PipelineMessage, Tensors> made_;       ///< to be sent, or used on this rank
  std::map<std::pair<int, int>, Stash> stashed_;  ///< keyed by stage and version
  std::map<int, int> restored_;                   ///< keyed by stage: the version that its next computation uses
};

}  // namespace trireme
