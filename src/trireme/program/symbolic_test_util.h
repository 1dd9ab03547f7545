// For tests: runs programs on symbols instead of tensors, as a transport and a model would, without checks of its own.
//
// A value is a hash of how it was computed, so equal values mean equal bits. Messages carry only values and arrive in
// the order in which they were sent. Its rules are written independently of the checker's: if the checker accepts a
// mutated program, this tells whether the mutation was harmless.
#pragma once

#include <bit>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "trireme/program/interpreter.h"

namespace trireme {

using Symbol = uint64_t;

inline Symbol symbol(std::initializer_list<Symbol> parts) {
  Symbol hash = 0x9e3779b97f4a7c15u;
  for (const Symbol part : parts) {
    hash = (hash ^ part) * 0xbf58476d1ce4e5b9u;
    hash ^= hash >> 29;
  }
  return hash;
}

inline Symbol first_weights(int stage) { return symbol({1, Symbol(stage)}); }
inline Symbol forward_symbol(int stage, int m, Symbol weights, Symbol input) {
  return symbol({2, Symbol(stage), Symbol(m), weights, input});
}
inline Symbol loss_gradient(Symbol output) { return symbol({3, output}); }
inline Symbol input_gradient(Symbol output, Symbol weights, Symbol gradient) {
  return symbol({4, output, weights, gradient});
}
inline Symbol weight_gradient(Symbol output, Symbol gradient, int group) {
  return symbol({5, output, gradient, Symbol(group)});
}
inline Symbol sum_symbol(Symbol a, Symbol b) { return symbol({6, a, b}); }

/// run() returns the final weights of each rank, by stage; nullopt if something was missing or the ranks deadlock.
class SymbolicRun {
 public:
  explicit SymbolicRun(const std::vector<Program>& programs) : programs_(programs), ranks_(programs.size()) {
    for (size_t rank = 0; rank < programs.size(); ++rank) {
      for (const int stage : programs[rank].own_stages()) ranks_[rank].weights[stage] = first_weights(stage);
    }
  }

  std::optional<std::vector<std::map<int, Symbol>>> run() {
    try {
      for (bool moved = true; moved;) {
        moved = false;
        for (size_t rank = 0; rank < ranks_.size(); ++rank) {
          const std::vector<Instruction>& list = programs_[rank].instructions;
          while (ranks_[rank].at < list.size() && step(static_cast<int>(rank), list[ranks_[rank].at])) {
            ++ranks_[rank].at;
            moved = true;
          }
        }
      }
    } catch (const std::out_of_range&) {
      return std::nullopt;
    }
    std::vector<std::map<int, Symbol>> weights;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (ranks_[rank].at < programs_[rank].instructions.size()) return std::nullopt;
      weights.push_back(ranks_[rank].weights);
    }
    return weights;
  }

 private:
  struct Rank {
    size_t at = 0;
    std::map<int, Symbol> weights, restored;
    std::map<std::pair<int, int>, Symbol> stash, input, output, passed_on, gradient, to_send_back;
    std::map<std::pair<int, int>, std::pair<int, size_t>> expected_input, expected_gradient;  ///< sender, number
    std::map<std::tuple<int, int, int>, Symbol> slots;                                        ///< stage, group, slot
    std::map<int, size_t> received;                                                           ///< [sender]
    std::map<std::pair<int, int>, int> reductions;  ///< stage, group: number of reductions
    std::map<std::pair<int, int>, std::vector<std::vector<Symbol>>> partials;
    std::map<int, int> updates;
    std::map<std::pair<int, int>, Symbol> gathered;  ///< stage, sharded group: version that was gathered
    std::map<std::pair<int, int>, std::vector<std::pair<Symbol, bool>>>
        scattered;  ///< values in order, and whether each is added
  };

  Symbol use_weights(Rank& own, const Program& program, int stage) {
    const auto found = own.restored.find(stage);
    if (found == own.restored.end()) return with_gathered(own, program, stage);
    const Symbol weights = found->second;
    own.restored.erase(found);
    return weights;
  }
  /// The newest weights, or another symbol if a sharded group was not gathered from them.
  static Symbol with_gathered(const Rank& own, const Program& program, int stage) {
    const Symbol newest = own.weights.at(stage);
    Symbol used = newest;
    for (int group = 0; group < program.sharded_groups_of(stage); ++group) {
      const auto whole = own.gathered.find({stage, group});
      const Symbol here = whole == own.gathered.end() ? 0 : whole->second;
      if (here != newest) used = symbol({8, used, Symbol(group), here});
    }
    return used;
  }
  static void end_pass(Rank& own, const Program& program, const Instruction& i) {
    if (program.zero.zero != 3 || (program.zero.keep && !makes_input_gradient(i.op))) return;
    for (int group = 0; group < program.sharded_groups_of(i.stage); ++group) own.gathered.erase({i.stage, group});
  }

  /// A value received by message, or from a stage on the same rank; nullopt: not there yet.
  std::optional<Symbol> fetch(int rank, const std::map<std::pair<int, int>, std::pair<int, size_t>>& expected,
                              const std::map<std::pair<int, int>, Symbol>& local, std::pair<int, int> local_key,
                              std::pair<int, int> key) {
    const auto message = expected.find(key);
    if (message == expected.end()) return local.at(local_key);
    const std::vector<Symbol>& queue = queues_[{message->second.first, rank}];
    if (message->second.second >= queue.size()) return std::nullopt;
    return queue[message->second.second];
  }

  bool step(int rank, const Instruction& i) {
    Rank& own = ranks_[static_cast<size_t>(rank)];
    const Program& program = programs_[static_cast<size_t>(rank)];
    const std::pair<int, int> key{i.stage, i.micro_batch};
    switch (i.op) {
      case OpCode::kForward: {
        std::optional<Symbol> input = 0;
        if (i.stage > 0) {
          input = fetch(rank, own.expected_input, own.passed_on, {i.stage - 1, i.micro_batch}, key);
        }
        if (!input) return false;
        own.input[key] = *input;
        own.output[key] = forward_symbol(i.stage, i.micro_batch, use_weights(own, program, i.stage), *input);
        end_pass(own, program, i);
        own.passed_on[key] = own.output[key];  // the input of a stage on the same rank
        return true;
      }
      case OpCode::kRecompute:
        own.output[key] = forward_symbol(i.stage, i.micro_batch, use_weights(own, program, i.stage), own.input.at(key));
        end_pass(own, program, i);
        return true;
      case OpCode::kBackward:
      case OpCode::kBackwardInput: {
        std::optional<Symbol> gradient;
        if (i.stage < 0 || i.stage + 1 >= program.num_stages()) {
          gradient = loss_gradient(own.output.at(key));
        } else {
          gradient = fetch(rank, own.expected_gradient, own.to_send_back, {i.stage + 1, i.micro_batch}, key);
        }
        if (!gradient) return false;
        own.gradient[key] = *gradient;
        own.to_send_back[key] = input_gradient(own.output.at(key), use_weights(own, program, i.stage), *gradient);
        end_pass(own, program, i);
        if (i.op == OpCode::kBackward) fill(own, program, i);
        return true;
      }
      case OpCode::kWeightGrad:
        fill(own, program, i);
        return true;
      case OpCode::kSendActivation:
        queues_[{rank, other_end(rank, i)}].push_back(own.output.at(key));
        return true;
      case OpCode::kSendGradient:
        queues_[{rank, other_end(rank, i)}].push_back(own.to_send_back.at(key));
        return true;
      case OpCode::kRecvActivation:
        own.expected_input[key] = {other_end(rank, i), own.received[other_end(rank, i)]++};
        return true;
      case OpCode::kRecvGradient:
        own.expected_gradient[key] = {other_end(rank, i), own.received[other_end(rank, i)]++};
        return true;
      case OpCode::kAddSlot: {
        Symbol& into = own.slots.at({i.stage, i.group, i.slot});
        into = sum_symbol(into, own.slots.at({i.stage, i.group, i.from_slot}));
        own.slots.erase({i.stage, i.group, i.from_slot});
        return true;
      }
      case OpCode::kAllGather:
        own.gathered[{i.stage, i.group}] = own.weights.at(i.stage);
        return true;
      case OpCode::kReduceScatter:
        if (program.zero.each_micro_batch) {
          own.scattered[{i.stage, i.group}].push_back({take_slot(own, program, i), i.add});
          return true;
        }
        [[fallthrough]];
      case OpCode::kAllReduce: {
        const int count = program.across.direct ? 1 : program.across.partials_of_rank.at(size_t(replica_of(rank)));
        std::vector<Symbol> sums;
        for (int slot = 0; slot < count; ++slot) sums.push_back(own.slots.at({i.stage, i.group, slot}));
        own.partials[{i.stage, i.group}].push_back(sums);
        return true;
      }
      case OpCode::kStashWeights:
        own.stash[{i.stage, i.version}] = own.weights.at(i.stage);
        return true;
      case OpCode::kRestoreWeights:
        own.restored[i.stage] = own.stash.at({i.stage, i.version});
        return true;
      case OpCode::kFree:
        if (i.version >= 0) {
          own.stash.at({i.stage, i.version});
          own.stash.erase({i.stage, i.version});
        } else {
          own.output.erase(key);
        }
        return true;
      case OpCode::kOptimizerStep: {
        for (const int stage : program.own_stages()) {
          if (i.stage >= 0 && stage != i.stage) continue;
          if (!update(rank, stage)) return false;
        }
        return true;
      }
      default:
        return true;
    }
  }

  void fill(Rank& own, const Program& program, const Instruction& i) {
    const std::pair<int, int> key{i.stage, i.micro_batch};
    for (int group = 0; group < program.groups_of(i.stage); ++group) {
      const Symbol made = weight_gradient(own.output.at(key), own.gradient.at(key), group);
      const bool alone = program.zero.each_micro_batch && group < program.sharded_groups_of(i.stage);
      if (i.add && !alone) {
        Symbol& sum = own.slots.at({i.stage, group, i.slot});
        sum = sum_symbol(sum, made);
      } else {
        own.slots[{i.stage, group, i.slot}] = made;
      }
    }
  }

  /// Takes the sum of the first full slot.
  static Symbol take_slot(Rank& own, const Program& program, const Instruction& i) {
    for (int slot = 0; slot < program.num_slots; ++slot) {
      const auto full = own.slots.find({i.stage, i.group, slot});
      if (full == own.slots.end()) continue;
      const Symbol sum = full->second;
      own.slots.erase(full);
      return sum;
    }
    throw std::out_of_range("nothing to scatter");
  }

  /// The sum of a group whose micro-batches are scattered one by one; nullopt: not complete yet.
  std::optional<Symbol> total_of_scattered(int rank, int stage, int group) {
    const Program& program = programs_[size_t(rank)];
    const auto& own = ranks_[size_t(rank)].scattered[{stage, group}];
    Symbol total = 0;
    for (size_t n = 0; n < own.size(); ++n) {
      std::vector<Symbol> sums;
      for (int replica = 0; replica < program.num_ranks; ++replica) {
        const auto& other = ranks_[places_.number_of(program.pipeline_rank, replica)].scattered[{stage, group}];
        if (other.size() <= n) return std::nullopt;
        sums.push_back(other[n].first);
      }
      reduce(sums, 0, sums.size());
      total = own[n].second ? sum_symbol(total, sums[0]) : sums[0];
    }
    return total;
  }

  int replica_of(int rank) const { return places_.replica_of(size_t(rank)); }

  int other_end(int rank, const Instruction& i) const {
    const Program& program = programs_[size_t(rank)];
    const int other = program.pipeline_rank + i.peer;
    const bool alike = program.replicas_of_rank.empty();
    return int(places_.number_of(other, alike ? replica_of(rank) : program.replica_with(i.micro_batch, other)));
  }

  bool update(int rank, int stage) {
    Rank& own = ranks_[static_cast<size_t>(rank)];
    const Program& program = programs_[static_cast<size_t>(rank)];
    std::vector<Symbol> totals;
    for (int group = 0; group < program.groups_of(stage); ++group) {
      if (program.zero.each_micro_batch && group < program.sharded_groups_of(stage)) {
        const std::optional<Symbol> total = total_of_scattered(rank, stage, group);
        if (!total) return false;
        totals.push_back(*total);
        continue;
      }
      if (program.num_ranks == 1) {
        totals.push_back(own.slots.at({stage, group, 0}));
        continue;
      }
      std::vector<Symbol> sums;
      for (int replica = 0; replica < program.num_ranks; ++replica) {
        const auto& other = ranks_[places_.number_of(program.pipeline_rank, replica)];
        const auto found = other.partials.find({stage, group});
        const size_t number = static_cast<size_t>(own.updates[stage]);
        if (found == other.partials.end() || found->second.size() <= number) return false;
        sums.insert(sums.end(), found->second[number].begin(), found->second[number].end());
      }
      if (program.across.direct) {
        reduce(sums, 0, sums.size());
      } else {
        for (const Addition& addition : program.across.additions) {
          sums.at(size_t(addition.into)) = sum_symbol(sums.at(size_t(addition.into)), sums.at(size_t(addition.from)));
        }
      }
      totals.push_back(sums.at(0));
    }
    ++own.updates[stage];
    for (const Symbol total : totals) own.weights[stage] = symbol({7, own.weights[stage], total});
    for (int group = 0; group < program.groups_of(stage); ++group) {
      for (int slot = 0; slot < program.num_slots; ++slot) own.slots.erase({stage, group, slot});
    }
    return true;
  }

  static void reduce(std::vector<Symbol>& sums, size_t first, size_t last) {
    if (last - first < 2) return;
    const size_t split = first + std::bit_floor(last - first - 1);
    reduce(sums, first, split);
    reduce(sums, split, last);
    sums[first] = sum_symbol(sums[first], sums[split]);
  }

  const std::vector<Program>& programs_;
  const ProgramPlaces places_{programs_.front()};
  std::vector<Rank> ranks_;
  std::map<std::pair<int, int>, std::vector<Symbol>> queues_;
};

}  // namespace trireme
