#include "trireme/program/zero.h"

#include <set>

namespace trireme {
namespace {

class ShardedProgram {
 public:
  ShardedProgram(Program program, const ZeroShape& shape) : program_(std::move(program)) {
    program_.zero = shape;
    if (program_.is_pipeline()) program_.zero.keep = false;  // other micro-batches run between the two passes
  }

  Program run() {
    std::vector<Instruction> list;
    list.swap(program_.instructions);
    std::set<int> gathered;  // stages gathered since the start of the step
    for (const Instruction& i : list) {
      const bool is_sharded = i.group >= 0 && i.group < program_.sharded_groups_of(i.stage);
      if (is_sharded && i.op == OpCode::kAllReduce) {
        if (!program_.zero.each_micro_batch) put(OpCode::kReduceScatter, i.stage, i.group);
        continue;
      }
      if (is_sharded && i.op == OpCode::kAddSlot && program_.zero.each_micro_batch) continue;
      if (needs_gather(i, gathered)) gather(i);
      program_.instructions.push_back(i);
      if (program_.zero.each_micro_batch && makes_weight_gradient(i.op)) scatter(i);
    }
    return std::move(program_);
  }

 private:
  bool needs_gather(const Instruction& i, std::set<int>& gathered) const {
    if (i.op == OpCode::kForward && (gathered.insert(i.stage).second || program_.zero.zero == 3)) return true;
    if (program_.zero.zero < 3) return false;
    return i.op == OpCode::kRecompute || (!program_.zero.keep && makes_input_gradient(i.op));
  }
  void put(OpCode op, int stage, int group, bool add = false) {
    program_.instructions.push_back({.op = op, .stage = stage, .add = add, .group = group});
  }
  /// Group 0 holds the last layers, so a forward pass gathers groups in descending order.
  void gather(const Instruction& use) {
    const int groups = program_.sharded_groups_of(use.stage);
    for (int n = 0; n < groups; ++n) {
      put(OpCode::kAllGather, use.stage, makes_input_gradient(use.op) ? n : groups - 1 - n);
    }
  }
  void scatter(const Instruction& pass) {
    const bool is_first = scattered_.insert(pass.stage).second;
    for (int group = 0; group < program_.sharded_groups_of(pass.stage); ++group) {
      put(OpCode::kReduceScatter, pass.stage, group, !is_first);
    }
  }

  Program program_;
  std::set<int> scattered_;
};

}  // namespace

Program shard_over_replicas(Program program, const ZeroShape& shape) {
  return shape.zero == 0 ? program : ShardedProgram(std::move(program), shape).run();
}

}  // namespace trireme
