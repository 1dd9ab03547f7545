#include "trireme/program/update.h"

#include <map>
#include <utility>

#include "trireme/base/index.h"

namespace trireme {
namespace {

class StepEnding {
 public:
  StepEnding(Program program, const UpdateShape& shape, int replica)
      : program_(std::move(program)), shape_(shape), replica_(replica) {
    program_.update = shape;
  }

  Program run() {
    const std::map<size_t, int> ends = ends_of_last_passes();
    const std::vector<Instruction> list = std::exchange(program_.instructions, {});
    if (shape_.refreshes_first) refresh_copies();
    for (size_t n = 0; n < list.size(); ++n) {
      if (list[n].op == OpCode::kOptimizerStep) {
        finish();
        continue;
      }
      if (!is_replaced(list[n])) put(list[n]);
      if (const auto end = ends.find(n); end != ends.end()) end_groups(end->second);
    }
    return std::move(program_);
  }

 private:
  void put(const Instruction& instruction) { program_.instructions.push_back(instruction); }
  bool sums() const { return shape_.exchange == GradientExchange::kSum; }
  int num_gradient_groups(int stage) const { return program_.groups_of(stage) - 1; }

  bool is_replaced(const Instruction& i) const {
    return !sums() && i.op == OpCode::kAllReduce && i.group < num_gradient_groups(i.stage);
  }

  /// Maps the index of the last group instruction after each stage's last weight gradients to the stage.
  std::map<size_t, int> ends_of_last_passes() const {
    std::map<int, size_t> last;
    for (size_t n = 0; n < program_.instructions.size(); ++n) {
      const Instruction& i = program_.instructions[n];
      if (makes_weight_gradient(i.op)) last[i.stage] = program_.end_of_group_instructions(n + 1) - 1;
    }
    std::map<size_t, int> ends;
    for (const auto& [stage, n] : last) ends[n] = stage;
    return ends;
  }

  void end_groups(int stage) {
    if (sums()) return;
    const bool has_partials = shape_.sums_own() && !program_.across.direct;
    const int num_slots = has_partials ? program_.across.partials_of_rank[at(replica_)] : 1;
    for (int group = 0; group < num_gradient_groups(stage); ++group) {
      for (int slot = 1; slot < num_slots; ++slot) {
        put({.op = OpCode::kAddSlot, .stage = stage, .slot = 0, .from_slot = slot, .group = group});
      }
      // Asynchronous servers get gradients only after the norm, which decides their clipping factor.
      if (shape_.exchange == GradientExchange::kServers) push(stage, group);
    }
  }

  void push(int stage, int group) { put({.op = OpCode::kPush, .stage = stage, .group = group}); }

  void finish() {
    const GradientExchange exchange = shape_.exchange;
    if (exchange != GradientExchange::kServers) add_tied_gradients();  // these servers store each use separately
    if (shape_.combines()) put({.op = OpCode::kCombine});
    if (shape_.norm) put({.op = OpCode::kNorm});
    if (exchange == GradientExchange::kAsyncServers) {
      for (const int stage : program_.own_stages()) {
        for (int group = 0; group < num_gradient_groups(stage); ++group) push(stage, group);
      }
    }
    put({.op = OpCode::kOptimizerStep});
    if (shape_.has_servers()) put({.op = OpCode::kPull});
    if (exchange == GradientExchange::kLocal) put({.op = OpCode::kMeet});
    if (!shape_.refreshes_first) refresh_copies();
  }

  int rank_of(int stage) const { return program_.is_pipeline() ? program_.owner_of(stage) : 0; }

  void add_tied_gradients() {
    for (size_t i = 0; i < shape_.tied.size(); ++i) {
      const auto& [owner, use, trained] = shape_.tied[i];
      if (!trained) continue;
      tie(i, {.op = OpCode::kSendTiedGradient, .stage = use}, owner);
      tie(i, {.op = OpCode::kAddTiedGradient, .stage = owner}, use);
    }
  }

  void refresh_copies() {
    for (size_t i = 0; i < shape_.tied.size(); ++i) {
      const auto& [owner, use, trained] = shape_.tied[i];
      if (rank_of(owner) == rank_of(use)) continue;  // both ends use the same memory
      tie(i, {.op = OpCode::kSendTiedWeight, .stage = owner}, use);
      tie(i, {.op = OpCode::kTakeTiedWeight, .stage = use}, owner);
    }
  }

  void tie(size_t number, Instruction instruction, int other) {
    if (rank_of(instruction.stage) != program_.pipeline_rank) return;
    instruction.tied = static_cast<int>(number);
    instruction.peer = rank_of(other) - program_.pipeline_rank;
    if (instruction.peer != 0 || instruction.op == OpCode::kAddTiedGradient) put(instruction);
  }

  Program program_;
  const UpdateShape& shape_;
  const int replica_;
};

}  // namespace

Program with_update(Program program, const UpdateShape& shape, int replica) {
  return program.num_updates > 1 ? program : StepEnding(std::move(program), shape, replica).run();
}

}  // namespace trireme
