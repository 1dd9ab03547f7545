#include "trireme/runtime/executor.h"

#include "trireme/base/deadline.h"
#include "trireme/base/error.h"

namespace trireme {
namespace {

/// Adds the time of its life to a counter.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds) {}
  ~Stopwatch() { seconds_ += std::chrono::duration<double>(Clock::now() - start_).count(); }
  Stopwatch(const Stopwatch&) = delete;

 private:
  double& seconds_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace

Executor::Executor(Program program, GradientStore& store, Communicator* comm, int64_t num_values,
                   torch::ScalarType travel_type, bool overlap)
    : program_(std::move(program)),
      store_(store),
      reducer_(comm, program_.across, travel_type),
      overlap_(overlap),
      micro_batch_values_(torch::zeros({num_values}, torch::TensorOptions().device(store.device()))) {
  if (program_.num_groups != store.num_groups() + 1 || program_.num_slots != store.num_slots()) {
    throw Error("the program was written for another model");
  }
  for (int slot = 0; slot < program_.num_slots; ++slot) {
    values_.push_back(shared_zeros(comm, num_values, micro_batch_values_.options()));
  }
}

StepTimes Executor::run(const StepActions& actions) {
  times_ = {};
  execute(actions, false);
  return times_;
}

void Executor::replay(const StepActions& actions) { execute(actions, true); }

void Executor::execute(const StepActions& actions, bool alone) {
  alone_ = alone;
  torch::Tensor loss;
  const std::vector<Instruction>& list = program_.instructions;
  for (size_t at = 0; at < list.size(); ++at) {
    const Instruction& instruction = list[at];
    switch (instruction.op) {
      case OpCode::kForward: {
        const Stopwatch watch(times_.forward_s);
        loss = actions.forward(instruction.micro_batch, micro_batch_values_);
        break;
      }
      case OpCode::kBackward: {
        const Stopwatch watch(times_.backward_s);
        run_backward(at, std::exchange(loss, {}));
        at = end_of_group_instructions(at + 1) - 1;
        break;
      }
      case OpCode::kAddSlot:
      case OpCode::kAllReduce:
        throw Error("a group instruction must follow a backward pass");
      case OpCode::kOptimizerStep: {
        {
          const Stopwatch watch(times_.communication_s);
          reducer_.finish();
        }
        const Stopwatch watch(times_.optimizer_s);
        if (!alone_) actions.optimizer_step();
        break;
      }
      default:
        throw Error("this executor runs no " + instruction.to_string());
    }
  }
}

size_t Executor::end_of_group_instructions(size_t after) const {
  while (after < program_.instructions.size() && program_.instructions[after].group >= 0) ++after;
  return after;
}

/// Group instructions that follow run as soon as the backward pass has filled their group.
void Executor::run_backward(size_t at, const torch::Tensor& loss) {
  const Instruction& backward = program_.instructions[at];
  const size_t end = end_of_group_instructions(at + 1);
  const auto run_group = [&](int group) {
    for (size_t i = at + 1; i < end; ++i) {
      if (program_.instructions[i].group == group) run_group_instruction(program_.instructions[i]);
    }
  };
  torch::Tensor& values = values_[static_cast<size_t>(backward.slot)];
  if (backward.add) {
    values.add_(micro_batch_values_);
  } else {
    values.copy_(micro_batch_values_);
  }

  store_.begin(backward.slot, backward.add, overlap_ ? run_group : std::function<void(int)>());
  loss.backward();
  store_.end();
  if (!overlap_) {
    for (int group = 0; group < store_.num_groups(); ++group) run_group(group);
  }
  run_group(program_.num_groups - 1);
}

void Executor::run_group_instruction(const Instruction& instruction) {
  const auto slot = [](int number) { return static_cast<size_t>(number); };
  if (instruction.op == OpCode::kAllReduce) {
    if (!alone_) reducer_.start(instruction.group, slots_of(instruction.group), !is_values(instruction.group));
  } else if (is_values(instruction.group)) {
    values_[slot(instruction.slot)].add_(values_[slot(instruction.from_slot)]);
  } else {
    store_.add_slot(instruction.group, instruction.slot, instruction.from_slot);
  }
}

std::vector<torch::Tensor> Executor::slots_of(int group) const {
  const int count = program_.across.direct ? 1 : program_.num_slots;
  std::vector<torch::Tensor> slots;
  for (int slot = 0; slot < count; ++slot) {
    slots.push_back(is_values(group) ? values_[static_cast<size_t>(slot)] : store_.group(slot, group));
  }
  return slots;
}

}  // namespace trireme
