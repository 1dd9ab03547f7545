#include "trireme/program/zero.h"

#include <set>

namespace trireme {
namespace {

class ShardedProgram {
 public:
  ShardedProgram(Program program, const ZeroShape& shape) : shape_(shape), program_(std::move(program)) {}

  Program run() {
    std::vector<Instruction> list;
    list.swap(program_.instructions);
    std::set<int> gathered;  // stages whose weights are new
    for (const Instruction& i : list) {
      const bool is_shared = i.group >= 0 && i.group < num_shared(i.stage);
      if (is_shared && i.op == OpCode::kAllReduce) {
        if (!shape_.each_micro_batch) put(OpCode::kReduceScatter, i.stage, i.group);
        continue;
      }
      if (is_shared && i.op == OpCode::kAddSlot && shape_.each_micro_batch) continue;
      if (needs_gather(i, gathered)) gather(i);
      program_.instructions.push_back(i);
      if (shape_.each_micro_batch && makes_weight_gradient(i.op)) scatter(i);
    }
    return std::move(program_);
  }

 private:
  int num_shared(int stage) const {
    if (shape_.shared_groups.empty()) return program_.groups_of(stage);
    return shape_.shared_groups[static_cast<size_t>(stage < 0 ? 0 : stage)];
  }
  bool needs_gather(const Instruction& i, std::set<int>& gathered) const {
    if (i.op == OpCode::kForward && (gathered.insert(i.stage).second || shape_.zero == 3)) return true;
    return shape_.zero == 3 && !shape_.keep && makes_input_gradient(i.op);
  }
  void put(OpCode op, int stage, int group, bool add = false) {
    program_.instructions.push_back({.op = op, .stage = stage, .add = add, .group = group});
  }
  /// Groups count from the last layers.
  void gather(const Instruction& use) {
    const int groups = num_shared(use.stage);
    for (int n = 0; n < groups; ++n) {
      put(OpCode::kAllGather, use.stage, use.op == OpCode::kForward ? groups - 1 - n : n);
    }
  }
  void scatter(const Instruction& pass) {
    const bool is_first = scattered_.insert(pass.stage).second;
    for (int group = 0; group < num_shared(pass.stage); ++group) {
      put(OpCode::kReduceScatter, pass.stage, group, !is_first);
    }
  }

  const ZeroShape shape_;
  Program program_;
  std::set<int> scattered_;
};

}  // namespace

Program share_over_replicas(Program program, const ZeroShape& shape) {
  return shape.zero == 0 ? program : ShardedProgram(std::move(program), shape).run();
}

}  // namespace trireme
