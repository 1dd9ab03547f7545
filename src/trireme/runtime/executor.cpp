#include "trireme/runtime/executor.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/comm/control/clock_offset.h"
#include "trireme/runtime/stopwatch.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/host_shared_tensor.h"

namespace trireme {
namespace {

/// Rethrows the current exception, with its place added to its message and its fields.
[[noreturn]] void rethrow_at(int pipeline_rank, const Where& here) {
  const auto said = [&](const char* words) {
    return fmt::format("rank {} of the pipeline, step {}, {}: {}", pipeline_rank, *here.step, here.instruction, words);
  };
  try {
    throw;
  } catch (const CommError& error) {
    throw CommError(said(error.what()), error.culprit(), completed(error.where(), here));
  } catch (const UsageError& error) {
    throw UsageError(said(error.what()), {}, completed(error.where(), here));
  } catch (const Error& error) {
    throw Error(said(error.what()), {}, completed(error.where(), here));
  } catch (const c10::Error& error) {
    throw Error(said(error.what_without_backtrace()), {}, here);
  } catch (const std::exception& error) {
    throw Error(said(error.what()), {}, here);
  }
}

Where place_of(const Instruction& instruction, uint64_t step) {
  Where where{.step = static_cast<int64_t>(step), .instruction = instruction.to_string()};
  if (instruction.stage >= 0) where.stage = instruction.stage;
  if (instruction.micro_batch >= 0) where.micro_batch = instruction.micro_batch;
  return where;
}

}  // namespace

Executor::Executor(Program program, std::map<int, Stage> stages, const ExecutorOptions& options)
    : program_(std::move(program)),
      stages_(std::move(stages)),
      device_(options.device),
      overlap_(options.overlap),
      shard_group_(options.shard_group),
      copies_(options.copies),
      tied_(options.tied),
      messages_(options.messages),
      reducer_(options.replicas, program_.across, options.travel_type) {
  if (options.pipeline) {
    messages_ = &plain_messages_.emplace(*options.pipeline, device_);
  }
  int groups = 0;
  for (const int number : program_.own_stages()) {
    const auto found = stages_.find(number);
    if (found == stages_.end()) throw Error(fmt::format("the program needs stage {}, which is not here", number));
    const Stage& stage = found->second;
    const int own_groups = (stage.store ? stage.store->num_groups() : 0) + (stage.num_values > 0 ? 1 : 0);
    if ((own_groups > 0 && own_groups != program_.groups_of(number)) ||
        (stage.store && stage.store->num_slots() != program_.num_slots)) {
      throw Error(fmt::format(
          "stage {} has {} groups and {} slots of gradients, and the program was written for {} and {}", number,
          own_groups, stage.store ? stage.store->num_slots() : 0, program_.groups_of(number), program_.num_slots));
    }
    for (int slot = 0; slot < program_.num_slots; ++slot) {
      values_[number].push_back(
          host_shared_zeros(options.replicas, stage.num_values, torch::TensorOptions().device(device_)));
    }
    if (stage.store) stage.store->on_full = [this] { return reducer_.finish_first(); };
    first_group_[number] = groups;
    groups += program_.groups_of(number);
  }
  take_program(std::move(program_));
}

void Executor::take_program(Program program) {
  program_ = std::move(program);
  recomputed_.clear();
  for (const Instruction& instruction : program_.instructions) {
    if (instruction.op != OpCode::kFree || instruction.micro_batch < 0) continue;
    recomputed_.insert({instruction.stage, instruction.micro_batch});
  }
}

/// Whether each replica only needs its part of the sum. With several shard groups, sums over all replicas are made
/// whole.
bool Executor::is_scattered(int stage, int group) const {
  if (!shard_group_ || copies_) return false;
  return std::any_of(program_.instructions.begin(), program_.instructions.end(), [&](const Instruction& each) {
    return each.op == OpCode::kReduceScatter && each.stage == stage && each.group == group;
  });
}

std::vector<GroupLayout> Executor::group_layouts() const {
  std::vector<GroupLayout> layouts;
  for (const int number : program_.own_stages()) {
    const Stage& stage = stages_.at(number);
    if (stage.store) {
      int group = 0;
      for (GroupLayout& layout : stage.store->group_layouts()) {
        if (is_scattered(number, group)) {
          const std::vector<int64_t>& cuts = stage.store->cuts(group);
          for (size_t i = 0; i + 1 < cuts.size(); ++i)
            layout.shards.push_back(static_cast<size_t>(cuts[i + 1] - cuts[i]));
        }
        layouts.push_back(std::move(layout));
        ++group;
      }
    }
    if (stage.num_values == 0) continue;
    layouts.push_back({fmt::format("values of stage {}", number), static_cast<size_t>(stage.num_values), {}});
  }
  return layouts;
}

StepTimes Executor::run(const Update& update) {
  times_ = {};
  update_ = &update;
  execute(false, [this] { run_list(0, program_.instructions.size()); });
  update_ = nullptr;
  return times_;
}

StepTimes Executor::run(const Stream& stream, int rounds, const Update& update) {
  struct Restore {
    Executor& executor;
    Program program = executor.program_;
    std::set<Place> recomputed = executor.recomputed_;
    ~Restore() {
      std::swap(executor.program_, program);
      executor.recomputed_.swap(recomputed);
      executor.stream_ = nullptr;
      executor.update_ = nullptr;
    }
  } restore{*this};
  set_program(stream.program);
  stream_ = &stream;
  times_ = {};
  update_ = &update;
  execute(false, [&] {
    round_ = 0;
    run_list(0, stream.round_begin);
    for (; round_ < rounds; ++round_) run_list(stream.round_begin, stream.round_end);
    --round_;
    run_list(stream.round_end, stream.program.instructions.size());
  });
  return times_;
}

void Executor::replay() {
  execute(true, [this] { run_list(0, program_.instructions.size()); });
}

void Executor::set_program(const Program& program) {
  if (program.num_slots != program_.num_slots || program.rank_of_stage != program_.rank_of_stage ||
      program.groups_of_stage != program_.groups_of_stage || program.num_groups != program_.num_groups ||
      program.across != program_.across || program.zero != program_.zero) {
    throw Error("the program is not of the stages and sums that the executor has");
  }
  take_program(program);
}

void Executor::execute(bool alone, const std::function<void()>& lists) {
  const bool outer = std::exchange(alone_, alone);
  works_.clear();
  made_.clear();
  stashed_.clear();
  restored_.clear();
  for (const auto& [number, stage] : stages_) {
    if (!stage.store) continue;
    for (const GradientSource& source : stage.store->sources()) source.leaf.mutable_grad().reset();
  }
  if (tracing_) trace_.assign(program_.instructions.size(), {});
  lists();
  if (messages_) messages_->finish();
  alone_ = outer;
}

Instruction Executor::instruction_at(size_t at) const {
  const Instruction& instruction = program_.instructions[at];
  return stream_ ? stream_->shifted(instruction, round_) : instruction;
}

void Executor::run_list(size_t begin, size_t end) {
  for (size_t at = begin; at < end; ++at) {
    const size_t number = at;
    micro_batch_ = program_.instructions[number].micro_batch;
    const double start = ready_ = tracing_ ? clock_seconds() : 0;
    try {
      run_instruction(at);
    } catch (...) {
      if (!messages_) throw;
      rethrow_at(program_.pipeline_rank, place_of(instruction_at(number), step_));
    }
    if (!tracing_) continue;
    synchronize(device_);
    trace_[number] = {start, ready_, clock_seconds()};
  }
}

void Executor::run_instruction(size_t& at) {
  const Instruction instruction = instruction_at(at);
  const int peer = program_.pipeline_rank + instruction.peer;
  switch (instruction.op) {
    case OpCode::kForward:
      return run_forward(instruction);
    case OpCode::kRecompute:
      return recompute(instruction);
    case OpCode::kBackward:
      run_backward(at);
      at = program_.end_of_group_instructions(at + 1) - 1;
      return;
    case OpCode::kBackwardInput:
      return run_backward_input(instruction);
    case OpCode::kWeightGrad:
      run_weight_grad(at);
      at = program_.end_of_group_instructions(at + 1) - 1;
      return;
    case OpCode::kSendActivation:
    case OpCode::kSendGradient:
      return send(instruction, peer, *messages_);
    case OpCode::kRecvActivation:
    case OpCode::kRecvGradient:
      return messages_->post_receive(message_of(instruction), peer);
    case OpCode::kFree:  // activations need no call: the forward pass kept nothing
      if (instruction.version >= 0) stashed_.erase({instruction.stage, instruction.version});
      return;
    case OpCode::kStashWeights:
      return stash(instruction);
    case OpCode::kRestoreWeights:
      restored_[instruction.stage] = instruction.version;
      return;
    case OpCode::kSendTiedGradient:
    case OpCode::kAddTiedGradient:
    case OpCode::kSendTiedWeight:
    case OpCode::kTakeTiedWeight:
      return run_tied(instruction);
    case OpCode::kPush:
    case OpCode::kCombine:
    case OpCode::kNorm:
    case OpCode::kOptimizerStep:
    case OpCode::kPull:
    case OpCode::kMeet:
      return run_update(instruction);
    case OpCode::kAllGather:
      if (LayerWeights* weights = stages_.at(instruction.stage).weights) weights->expect(instruction.group);
      return;
    case OpCode::kAddSlot:
    case OpCode::kAllReduce:
    case OpCode::kReduceScatter:
      throw Error(fmt::format("{} does not follow a backward pass", instruction.to_string()),
                  "give a group instruction its place behind the pass that fills the group");
  }
}

void Executor::send(const Instruction& instruction, int peer, StageMessages& messages) {
  const PipelineMessage message = message_of(instruction);
  messages.send(message, peer, made_.at(message));
  made_.erase(message);
}

void Executor::run_passes(const Program& program, StageMessages* messages, const Pass& pass) {
  const torch::NoGradGuard no_grad;
  made_.clear();
  const auto run = [&](const Instruction& i) {
    const int peer = program.pipeline_rank + i.peer;
    if (i.op == OpCode::kRecvActivation) return messages->post_receive(message_of(i), peer);
    if (i.op == OpCode::kSendActivation) return send(i, peer, *messages);
    LayerWeights* const weights = stages_.at(i.stage).weights;
    if (i.op == OpCode::kAllGather) return weights ? weights->expect(i.group) : void();
    const auto [needs, makes] = messages_of(i, program.num_stages());
    Tensors outputs = pass(i.stage, needs ? take(*needs, messages) : Tensors(), i.micro_batch);
    if (weights) weights->end_pass(false);
    if (makes) made_[*makes] = std::move(outputs);
  };
  for (const Instruction& instruction : program.instructions) {
    try {
      run(instruction);
    } catch (...) {
      if (!messages) throw;
      rethrow_at(program.pipeline_rank, place_of(instruction, step_));
    }
  }
  if (messages) messages->finish();
}

void Executor::finish_sums() {
  const Stopwatch watch(times_.communication_s);
  reducer_.finish();
}

void Executor::run_update(const Instruction& instruction) {
  if (alone_) return;
  finish_sums();
  const Stopwatch watch(times_.optimizer_s);
  (*update_)(instruction);
}

void Executor::run_tied(const Instruction& instruction) {
  if (alone_) return;
  finish_sums();
  const Stopwatch watch(times_.optimizer_s);
  switch (instruction.op) {
    case OpCode::kSendTiedGradient:
      return tied_->send_gradient(instruction.tied);
    case OpCode::kAddTiedGradient:
      return tied_->add_gradient(instruction.tied);
    case OpCode::kSendTiedWeight:
      return tied_->send_weight(instruction.tied);
    default:
      return tied_->take_weight(instruction.tied);
  }
}

bool Executor::is_values(int stage, int group) const {
  return stages_.at(stage).num_values > 0 && group == program_.groups_of(stage) - 1;
}

/// Runs a backward pass into a slot; group instructions that follow it run as soon as their group is full.
void Executor::fill_slot(size_t at, const torch::Tensor& values, const std::function<void()>& backward) {
  const Instruction& instruction = program_.instructions[at];
  const int stage = instruction.stage;
  GradientStore* const store = stages_.at(stage).store;
  const size_t end = program_.end_of_group_instructions(at + 1);
  const auto run_group = [&](int group) {
    for (size_t i = at + 1; i < end; ++i) {
      if (program_.instructions[i].group == group) run_group_instruction(program_.instructions[i]);
    }
  };
  if (store) store->begin(instruction.slot, instruction.add, overlap_ ? run_group : std::function<void(int)>());
  backward();
  if (store) store->end();
  if (store && !overlap_) {
    for (int group = 0; group < store->num_groups(); ++group) run_group(group);
  }
  if (stages_.at(stage).num_values == 0) return;
  const torch::NoGradGuard no_grad;
  torch::Tensor& sums = values_.at(stage)[static_cast<size_t>(instruction.slot)];
  if (instruction.add) {
    sums.add_(values);
  } else {
    sums.copy_(values);
  }
  run_group(program_.groups_of(stage) - 1);
}

void Executor::run_group_instruction(const Instruction& instruction) {
  const int stage = instruction.stage, group = instruction.group;
  GradientStore* const store = stages_.at(stage).store;
  std::vector<torch::Tensor>& values = values_.at(stage);
  const bool of_values = is_values(stage, group);
  if (instruction.op == OpCode::kAddSlot) {
    if (!of_values) return store->add_slot(group, instruction.slot, instruction.from_slot);
    values[static_cast<size_t>(instruction.slot)].add_(values[static_cast<size_t>(instruction.from_slot)]);
    return;
  }
  if (instruction.op == OpCode::kReduceScatter) return scatter_group(instruction);
  if (instruction.op == OpCode::kPush) {
    if (!alone_) (*update_)(instruction);
    return;
  }
  if (instruction.op != OpCode::kAllReduce) {
    throw Error(fmt::format("{} is not among what follows a backward pass: AddSlot, Push, AllReduce and ReduceScatter",
                            instruction.to_string()));
  }
  if (alone_) return;
  std::vector<torch::Tensor> slots;
  for (int slot = 0; slot < (program_.across.direct ? 1 : program_.num_slots); ++slot) {
    slots.push_back(of_values ? values[static_cast<size_t>(slot)] : store->group(slot, group));
  }
  reducer_.start(first_group_.at(stage) + group, std::move(slots), !of_values);
}

void Executor::scatter_group(const Instruction& instruction) {
  const int group = instruction.group;
  GradientStore* const store = stages_.at(instruction.stage).store;
  std::vector<torch::Tensor> slots = {store->take_out(group)};
  if (alone_) return store->give_back(slots[0]);
  const bool single = program_.across.direct || !store->keeps_whole();
  for (int slot = 1; slot < (single ? 1 : program_.num_slots); ++slot) slots.push_back(store->group(slot, group));
  ShardedSum sum = sharded_sum(*store, group, slots[0], *shard_group_);
  sum.copies = copies_;
  sum.add = instruction.add;
  sum.single = single;
  reducer_.start(first_group_.at(instruction.stage) + group, std::move(slots), true, std::move(sum));
}

}  // namespace trireme
