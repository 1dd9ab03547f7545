// The computations of a program: forward and backward passes of a stage, what they keep, and the weights they use.
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/comm/control/clock_offset.h"
#include "trireme/runtime/executor.h"
#include "trireme/runtime/stopwatch.h"
#include "trireme/tensor/mesh_tensor.h"

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

/// Restores buffers and RNG state on destruction, so that recomputation has no side effects.
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
    // The graph may refer to the buffers; variable_data() hides these changes from it, as layers do.
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

/// A range of bytes in a storage.
struct StorageRange {
  c10::Storage storage;
  int64_t first = 0, last = 0;
};

/// The memory of parameters: for each storage, the bytes from the first to the last of them.
std::vector<StorageRange> memory_of(const std::vector<GradientSource>& sources) {
  std::vector<StorageRange> ranges;
  for (const GradientSource& source : sources) {
    const torch::Tensor part = local_part(source.leaf);
    if (part.numel() == 0) continue;
    const auto first = part.storage_offset() * part.element_size();
    const auto last = first + static_cast<int64_t>(at::detail::computeStorageNbytes(
                                  part.sizes(), part.strides(), static_cast<size_t>(part.element_size())));
    const auto known = std::find_if(ranges.begin(), ranges.end(), [&](const StorageRange& range) {
      return range.storage.is_alias_of(part.storage());
    });
    if (known == ranges.end()) {
      ranges.push_back({part.storage(), first, last});
    } else {
      known->first = std::min(known->first, first);
      known->last = std::max(known->last, last);
    }
  }
  return ranges;
}

/// Roots of a backward pass.
struct Roots {
  Tensors outputs;    ///< outputs that require gradients
  Tensors gradients;  ///< one per output; empty if the output is a loss
};

/// `gradients`: one per floating-point output, in order; empty if the output is a loss.
Roots roots_of(const Tensors& outputs, const Tensors& gradients) {
  Roots roots;
  size_t next = 0;
  for (const torch::Tensor& output : outputs) {
    if (!output.is_floating_point()) continue;
    const size_t own = next++;
    if (!output.requires_grad()) continue;
    roots.outputs.push_back(output);
    if (!gradients.empty()) roots.gradients.push_back(gradients.at(own));
  }
  return roots;
}

/// Marks inputs that can have gradients: integers cannot.
void want_gradients(const Tensors& inputs) {
  for (const torch::Tensor& input : inputs) {
    if (input.is_floating_point()) input.requires_grad_();
  }
}

std::vector<uint32_t> versions_of(const Tensors& tensors) {
  std::vector<uint32_t> versions;
  for (const torch::Tensor& tensor : tensors) versions.push_back(tensor._version());
  return versions;
}

Tensors detached(Tensors tensors) {
  for (torch::Tensor& tensor : tensors) tensor = tensor.detach();
  return tensors;
}

}  // namespace

/// During its lifetime the stage has the weights that were restored for it, if any; afterwards, the newest ones again.
///
/// [Note: Old weights]
/// A graph refers to parameters, to views of them and to local parts of mesh tensors, and all of those to a storage. So
/// the storage gets the memory of a stash for the duration of a pass, and whatever the graph has saved shows the
/// weights of its forward pass.
class Executor::OldWeights {
 public:
  OldWeights(Executor& executor, int stage) {
    const auto restored = executor.restored_.find(stage);
    if (restored == executor.restored_.end()) return;
    if (const GradientStore* store = executor.stages_.at(stage).store) ranges_ = memory_of(store->sources());
    const Stash& old = executor.stashed_.at({stage, restored->second});
    for (size_t i = 0; i < old.size(); ++i) {
      // Where the storage would begin: only bytes from `first` on are parameters.
      const auto begin = reinterpret_cast<uintptr_t>(old[i].data_ptr()) - static_cast<uintptr_t>(ranges_[i].first);
      newest_.push_back(
          ranges_[i].storage.set_data_ptr(c10::DataPtr(reinterpret_cast<void*>(begin), ranges_[i].storage.device())));
    }
    executor.restored_.erase(restored);
  }
  ~OldWeights() {
    for (size_t i = 0; i < newest_.size(); ++i) ranges_[i].storage.set_data_ptr_noswap(std::move(newest_[i]));
  }
  OldWeights(const OldWeights&) = delete;

 private:
  std::vector<StorageRange> ranges_;
  std::vector<c10::DataPtr> newest_;
};

void Executor::stash(const Instruction& instruction) {
  const GradientStore* store = stages_.at(instruction.stage).store;
  Stash& kept = stashed_[{instruction.stage, instruction.version}];
  if (!store) return;
  const torch::NoGradGuard no_grad;
  const auto bytes = torch::TensorOptions().device(device_).dtype(torch::kUInt8);
  for (const StorageRange& range : memory_of(store->sources())) {
    kept.push_back(torch::empty({0}, bytes).set_(range.storage, range.first, {range.last - range.first}, {1}).clone());
  }
}

/// Takes a message from the previous or next stage, on this rank or another.
Tensors Executor::take(const PipelineMessage& message, StageMessages* messages) {
  const auto here = made_.find(message);
  if (here != made_.end()) return std::move(made_.extract(here).mapped());
  const Stopwatch watch(times_.messages_s);
  Tensors tensors = messages->take(message);
  if (tracing_) ready_ = clock_seconds();
  return tensors;
}

void Executor::run_forward(const Instruction& instruction) {
  const int stage = instruction.stage, micro_batch = instruction.micro_batch;
  Work& work = works_[{stage, micro_batch}];
  const auto [needs, makes] = messages_of(instruction, program_.num_stages());
  if (needs) work.inputs = detached(take(*needs, messages_));
  const Stopwatch watch(times_.forward_s);
  work.values = torch::empty({stages_.at(stage).num_values}, torch::TensorOptions().device(device_));
  Tensors outputs;
  const int in_program = stream_ ? micro_batch - round_ * stream_->micro_batches_per_round : micro_batch;
  if (recomputed_.contains({stage, in_program})) {
    const torch::Tensor before = random_state(device_);
    const std::vector<uint32_t> versions = versions_of(work.inputs);
    const torch::NoGradGuard keeps_nothing;
    outputs = compute(instruction, work.inputs, work.values);
    if (versions_of(work.inputs) != versions) {
      throw UsageError("the stage changes its input, from which it is to be computed again",
                       "let its first layer not work in place, or turn recomputation off");
    }
    if (!at::equal(before, random_state(device_))) work.random_before = before;
  } else {
    want_gradients(work.inputs);
    outputs = work.outputs = compute(instruction, work.inputs, work.values);
  }
  if (LayerWeights* weights = stages_.at(stage).weights) weights->end_pass(/*kept=*/stage < 0);
  if (!makes) return;
  check_forms(instruction, outputs);
  made_[*makes] = detached(std::move(outputs));
}

Tensors Executor::compute(const Instruction& instruction, const Tensors& inputs, const torch::Tensor& values) {
  const OldWeights weights(*this, instruction.stage);
  Tensors outputs = stages_.at(instruction.stage).forward(inputs, instruction.micro_batch, values);
  if (is_last(instruction.stage) && (outputs.size() != 1 || outputs[0].dim() != 0)) {
    throw UsageError(fmt::format("the loss is {}, and must be a scalar", to_string(forms_of(outputs))),
                     "return the mean or the sum over the micro-batch");
  }
  return outputs;
}

void Executor::recompute(const Instruction& instruction) {
  const Stopwatch watch(times_.forward_s);
  Work& work = works_.at({instruction.stage, instruction.micro_batch});
  want_gradients(work.inputs);
  const Repetition repetition(device_, work.random_before, stages_.at(instruction.stage).buffers);
  work.outputs = compute(instruction, work.inputs, torch::empty_like(work.values));
}

/// [Note: Shapes in a pipeline]
void Executor::check_forms(const Instruction& instruction, const Tensors& outputs) {
  const TensorForms forms = forms_of(outputs);
  const auto [known, is_new] = outputs_.try_emplace(instruction.stage, forms);
  if (is_new) {
    TensorForms gradients = forms;
    std::erase_if(gradients, [](const TensorForm& form) { return !at::isFloatingType(form.type); });
    if (gradients.empty()) {
      throw UsageError(fmt::format("stage {} gives {}, which has no gradients", instruction.stage, to_string(forms)),
                       "cut the model where floating-point numbers cross");
    }
    messages_->set_gradient_forms(instruction.stage, std::move(gradients));
  } else if (forms != known->second) {
    throw UsageError(
        fmt::format("stage {} gives {} for micro-batch {}, and gave {} for those before", instruction.stage,
                    to_string(forms), instruction.micro_batch, to_string(known->second)),
        "shapes between stages are fixed: give all micro-batches the same shape");
  }
}

Tensors Executor::take_output_gradients(const Instruction& instruction) {
  const std::optional<PipelineMessage> needs = messages_of(instruction, program_.num_stages()).needs;
  return needs ? take(*needs, messages_) : Tensors();
}

/// Gives gradients of floating-point inputs to the previous stage: zeros for inputs that do not affect the outputs.
void Executor::give_input_gradients(const Instruction& instruction, const Tensors& inputs, const Tensors& gradients) {
  const std::optional<PipelineMessage> makes = messages_of(instruction, program_.num_stages()).makes;
  if (!makes) return;
  Tensors& made = made_[*makes];
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].is_floating_point()) continue;
    made.push_back(gradients[i].defined() ? gradients[i] : torch::zeros_like(inputs[i]).detach());
  }
}

void Executor::run_backward(size_t at) {
  const Instruction instruction = instruction_at(at);
  const Tensors gradients = take_output_gradients(instruction);
  const Stopwatch watch(times_.backward_s);
  Work work = std::move(works_.extract({instruction.stage, instruction.micro_batch}).mapped());
  const OldWeights weights(*this, instruction.stage);
  LayerWeights* const sharded = stages_.at(instruction.stage).weights;
  if (sharded) sharded->begin_backward();
  fill_slot(at, work.values, [&] {
    const Roots roots = roots_of(work.outputs, gradients);
    if (!roots.outputs.empty()) torch::autograd::backward(roots.outputs, roots.gradients);
  });
  if (sharded) sharded->end_pass(false);
  Tensors input_gradients;
  for (torch::Tensor& input : work.inputs) {
    input_gradients.push_back(std::exchange(input.mutable_grad(), torch::Tensor()));
  }
  give_input_gradients(instruction, work.inputs, input_gradients);
}

void Executor::run_backward_input(const Instruction& instruction) {
  const Tensors gradients = take_output_gradients(instruction);
  const Stopwatch watch(times_.backward_s);
  Work& work = works_.at({instruction.stage, instruction.micro_batch});
  Roots roots = roots_of(std::exchange(work.outputs, {}), gradients);
  const Tensors inputs = std::exchange(work.inputs, {});
  work.split = std::make_unique<SplitBackward>(std::move(roots.outputs), inputs);
  const OldWeights weights(*this, instruction.stage);
  LayerWeights* const sharded = stages_.at(instruction.stage).weights;
  if (sharded) sharded->begin_backward();
  give_input_gradients(instruction, inputs, work.split->run_inputs(roots.gradients));
  if (sharded) sharded->end_pass(false);
  const GradientStore* store = stages_.at(instruction.stage).store;
  if (store == nullptr) return;
  for (const GradientSource& source : store->sources()) {
    if (!source.leaf.grad().defined()) continue;
    throw UsageError(fmt::format("the gradient of {} comes with the gradients of inputs: a part of stage {} "
                                 "differentiates inside its backward pass",
                                 source.name, instruction.stage),
                     "take a schedule that does not split the backward pass, such as 1f1b; or recompute by stages");
  }
}

void Executor::run_weight_grad(size_t at) {
  const Instruction instruction = instruction_at(at);
  const Stopwatch watch(times_.backward_s);
  const Work work = std::move(works_.extract({instruction.stage, instruction.micro_batch}).mapped());
  const OldWeights weights(*this, instruction.stage);
  fill_slot(at, work.values, [&] { work.split->run_weights(); });
}

}  // namespace trireme
