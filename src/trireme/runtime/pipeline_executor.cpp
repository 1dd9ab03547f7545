#include "trireme/runtime/pipeline_executor.h"

#include <ATen/Context.h>
#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

torch::Tensor random_state(const torch::Device& device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_random_state(const torch::Device& device, const torch::Tensor& state) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

/// What a stage changes beside its output is as before when this ends: it has happened once already.
class Repetition {
 public:
  Repetition(const torch::Device& device, const torch::Tensor& random, const std::vector<torch::Tensor>& buffers)
      : device_(device), buffers_(buffers) {
    for (const torch::Tensor& buffer : buffers) values_.push_back(buffer.detach().clone());
    if (!random.defined()) return;
    random_ = random_state(device);
    set_random_state(device, random);
  }
  ~Repetition() {
    // The graph may refer to the buffers; variable_data() keeps their changes from it, as layers do.
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < values_.size(); ++i) buffers_[i].variable_data().copy_(values_[i]);
    if (random_.defined()) set_random_state(device_, random_);
  }
  Repetition(const Repetition&) = delete;

 private:
  const torch::Device device_;
  const std::vector<torch::Tensor>& buffers_;
  std::vector<torch::Tensor> values_;
  torch::Tensor random_;
};

std::vector<torch::Tensor> as_list(const torch::Tensor& tensor) {
  return tensor.defined() ? std::vector{tensor} : std::vector<torch::Tensor>{};
}

/// The exception under way, with its place before its words.
[[noreturn]] void rethrow_at(const std::string& place) {
  try {
    throw;
  } catch (const CommError& error) {
    throw CommError(fmt::format("{}: {}", place, error.what()), error.culprit());
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("{}: {}", place, error.what()));
  } catch (const c10::Error& error) {
    throw Error(fmt::format("{}: {}", place, error.what_without_backtrace()));
  } catch (const std::exception& error) {
    throw Error(fmt::format("{}: {}", place, error.what()));
  }
}

}  // namespace

PipelineExecutor::PipelineExecutor(Program program, std::map<int, PipelineStage> stages, Communicator& pipeline,
                                   Communicator* replicas, torch::Device device)
    : program_(std::move(program)),
      stages_(std::move(stages)),
      rank_(program_.pipeline_rank),
      device_(device),
      messages_(pipeline, program_.num_micro_batches, device),
      reducer_(replicas, program_.across, torch::kFloat32) {
  if (program_.num_updates != 1) {
    throw UsageError(fmt::format("the program has {} updates of the weights in a step; this runtime makes one",
                                 program_.num_updates),
                     "take a synchronous schedule, such as 1f1b");
  }
  int groups = 0;
  for (const int stage : program_.own_stages()) {
    const auto found = stages_.find(stage);
    const bool fits = found != stages_.end() && (found->second.store == nullptr ||
                                                 (found->second.store->num_groups() == program_.groups_of(stage) &&
                                                  found->second.store->num_slots() == program_.num_slots));
    if (!fits) throw Error(fmt::format("stage {} is not the one that the program was written for", stage));
    first_group_[stage] = groups;
    groups += program_.groups_of(stage);
  }
  for (const Instruction& instruction : program_.instructions) {
    if (instruction.op == OpCode::kFree) recomputed_.insert({instruction.stage, instruction.micro_batch});
  }
}

std::vector<double> PipelineExecutor::run(const PipelineActions& actions) {
  works_.clear();
  made_.clear();
  losses_.clear();
  for (auto& [number, stage] : stages_) {
    if (stage.store == nullptr) continue;
    for (const GradientSource& source : stage.store->sources()) source.leaf.mutable_grad().reset();
  }
  for (size_t at = 0; at < program_.instructions.size(); ++at) {
    const Instruction& instruction = program_.instructions[at];
    try {
      run_instruction(at, actions);
    } catch (...) {
      rethrow_at(fmt::format("rank {} of the pipeline, {}", rank_, instruction.to_string()));
    }
  }
  std::vector<double> losses;
  for (const auto& [micro_batch, loss] : losses_) losses.push_back(loss.item<double>());
  return losses;
}

void PipelineExecutor::run_instruction(size_t& at, const PipelineActions& actions) {
  const Instruction& instruction = program_.instructions[at];
  const int stage = instruction.stage, micro_batch = instruction.micro_batch, peer = rank_ + instruction.peer;
  const auto send = [&](const PipelineMessage& message) {
    messages_.send(message, peer, made_.at(message));
    made_.erase(message);
  };
  switch (instruction.op) {
    case OpCode::kForward:
      return run_forward(instruction, actions);
    case OpCode::kRecompute:
      return recompute(instruction, actions);
    case OpCode::kBackward:
      run_backward(at);
      at = end_of_group_instructions(at + 1) - 1;
      return;
    case OpCode::kBackwardInput:
      return run_backward_input(instruction);
    case OpCode::kWeightGrad:
      run_weight_grad(at);
      at = end_of_group_instructions(at + 1) - 1;
      return;
    case OpCode::kSendActivation:
      return send({false, stage + 1, micro_batch});
    case OpCode::kSendGradient:
      return send({true, stage - 1, micro_batch});
    case OpCode::kRecvActivation:
      return messages_.post_receive({false, stage, micro_batch}, peer);
    case OpCode::kRecvGradient:
      return messages_.post_receive({true, stage, micro_batch}, peer);
    case OpCode::kFree:  // the forward pass has kept nothing
      return;
    case OpCode::kOptimizerStep:
      messages_.finish();
      reducer_.finish();
      return actions.optimizer_step();
    default:
      throw Error("this runtime cannot run it here");
  }
}

/// From the stage before or after, on this rank or another.
torch::Tensor PipelineExecutor::take(const PipelineMessage& message) {
  const auto here = made_.find(message);
  if (here == made_.end()) return messages_.take(message);
  torch::Tensor tensor = std::move(here->second);
  made_.erase(here);
  return tensor;
}

void PipelineExecutor::run_forward(const Instruction& instruction, const PipelineActions& actions) {
  const int stage = instruction.stage, micro_batch = instruction.micro_batch;
  Work& work = works_[{stage, micro_batch}];
  work.input = (stage == 0 ? actions.input(micro_batch) : take({false, stage, micro_batch})).detach();
  torch::Tensor output;
  if (recomputed_.contains({stage, micro_batch})) {
    const torch::Tensor before = random_state(device_);
    const uint32_t version = work.input._version();
    const torch::NoGradGuard keeps_nothing;
    output = compute(instruction, work, actions);
    if (work.input._version() != version) {
      throw UsageError("the stage changes its input, from which it is to be computed again",
                       "let its first layer not work in place, or turn recomputation off");
    }
    if (!at::equal(before, random_state(device_))) work.random_before = before;
  } else {
    if (stage > 0) work.input.requires_grad_();
    output = work.output = compute(instruction, work, actions);
  }
  if (is_last(stage)) {
    losses_[micro_batch] = output.detach();
  } else {
    check_form(instruction, output);
    made_[{false, stage + 1, micro_batch}] = output.detach();
  }
}

torch::Tensor PipelineExecutor::compute(const Instruction& instruction, Work& work, const PipelineActions& actions) {
  torch::Tensor output = stages_.at(instruction.stage).forward(work.input, instruction.micro_batch);
  if (!is_last(instruction.stage)) return output;
  torch::Tensor loss = actions.loss(instruction.micro_batch, output);
  if (loss.dim() != 0) {
    throw UsageError(fmt::format("the loss is {}, and must be a scalar", form_of(loss).to_string()),
                     "return the mean or the sum over the micro-batch");
  }
  return loss;
}

void PipelineExecutor::recompute(const Instruction& instruction, const PipelineActions& actions) {
  Work& work = works_.at({instruction.stage, instruction.micro_batch});
  if (instruction.stage > 0) work.input.requires_grad_();
  const Repetition repetition(device_, work.random_before, stages_.at(instruction.stage).buffers);
  work.output = compute(instruction, work, actions);
}

/// [Note: Shapes in a pipeline]
void PipelineExecutor::check_form(const Instruction& instruction, const torch::Tensor& output) {
  const TensorForm form = form_of(output);
  const auto [known, is_new] = outputs_.try_emplace(instruction.stage, form);
  if (is_new) {
    if (!output.is_floating_point()) {
      throw UsageError(fmt::format("stage {} gives {}, which has no gradients", instruction.stage, form.to_string()),
                       "cut the model where floating-point numbers cross");
    }
    messages_.set_gradient_form(instruction.stage, form);
  } else if (form != known->second) {
    throw UsageError(
        fmt::format("stage {} gives {} for micro-batch {}, and gave {} for those before", instruction.stage,
                    form.to_string(), instruction.micro_batch, known->second.to_string()),
        "shapes between stages are fixed: give all micro-batches the same shape");
  }
}

/// To the stage before. What does not matter for the output has gradients of zero.
void PipelineExecutor::give_input_gradient(const Instruction& instruction, const torch::Tensor& input,
                                           torch::Tensor gradient) {
  if (instruction.stage == 0) return;
  made_[{true, instruction.stage - 1, instruction.micro_batch}] =
      gradient.defined() ? std::move(gradient) : torch::zeros_like(input).detach();
}

void PipelineExecutor::run_backward(size_t at) {
  const Instruction& instruction = program_.instructions[at];
  const int stage = instruction.stage, micro_batch = instruction.micro_batch;
  const torch::Tensor gradient = is_last(stage) ? torch::Tensor() : take({true, stage, micro_batch});
  Work work = std::move(works_.at({stage, micro_batch}));
  works_.erase({stage, micro_batch});
  fill_slot(at, [&] {
    if (work.output.requires_grad()) torch::autograd::backward({work.output}, as_list(gradient));
  });
  give_input_gradient(instruction, work.input, std::exchange(work.input.mutable_grad(), torch::Tensor()));
}

void PipelineExecutor::run_backward_input(const Instruction& instruction) {
  const int stage = instruction.stage, micro_batch = instruction.micro_batch;
  const torch::Tensor gradient = is_last(stage) ? torch::Tensor() : take({true, stage, micro_batch});
  Work& work = works_.at({stage, micro_batch});
  work.split = std::make_unique<SplitBackward>(std::exchange(work.output, torch::Tensor()), work.input);
  const torch::Tensor input = std::exchange(work.input, torch::Tensor());
  give_input_gradient(instruction, input, work.split->run_input(gradient));
  const GradientStore* store = stages_.at(stage).store;
  if (store == nullptr) return;
  for (const GradientSource& source : store->sources()) {
    if (!source.leaf.grad().defined()) continue;
    throw UsageError(fmt::format("the gradient of {} comes with the gradients of inputs: a part of stage {} "
                                 "differentiates inside its backward pass",
                                 source.name, stage),
                     "take a schedule that does not split the backward pass, such as 1f1b; or recompute by stages");
  }
}

void PipelineExecutor::run_weight_grad(size_t at) {
  const Instruction& instruction = program_.instructions[at];
  const Place place{instruction.stage, instruction.micro_batch};
  const std::unique_ptr<SplitBackward> split = std::move(works_.at(place).split);
  works_.erase(place);
  fill_slot(at, [&] { split->run_weights(); });
}

size_t PipelineExecutor::end_of_group_instructions(size_t after) const {
  while (after < program_.instructions.size() && program_.instructions[after].group >= 0) ++after;
  return after;
}

/// Group instructions that follow run as soon as the backward pass has filled their group.
void PipelineExecutor::fill_slot(size_t at, const std::function<void()>& backward) {
  const Instruction& instruction = program_.instructions[at];
  GradientStore* const store = stages_.at(instruction.stage).store;
  if (store == nullptr) return backward();
  const size_t end = end_of_group_instructions(at + 1);
  store->begin(instruction.slot, instruction.add, [&](int group) {
    for (size_t i = at + 1; i < end; ++i) {
      if (program_.instructions[i].group == group) run_group_instruction(program_.instructions[i]);
    }
  });
  backward();
  store->end();
}

void PipelineExecutor::run_group_instruction(const Instruction& instruction) {
  const int stage = instruction.stage, group = instruction.group;
  GradientStore& store = *stages_.at(stage).store;
  if (instruction.op == OpCode::kAddSlot) return store.add_slot(group, instruction.slot, instruction.from_slot);
  if (instruction.op != OpCode::kAllReduce) throw Error(fmt::format("cannot run {}", instruction.to_string()));
  std::vector<torch::Tensor> slots;
  for (int slot = 0; slot < (program_.across.direct ? 1 : program_.num_slots); ++slot) {
    slots.push_back(store.group(slot, group));
  }
  reducer_.start(first_group_.at(stage) + group, std::move(slots));
}

}  // namespace trireme
