#include <algorithm>

#include "trireme/program/schedules/schedule.h"

namespace trireme {
namespace {

Instruction compute(OpCode op, int stage, int micro_batch) {
  return {.op = op, .stage = stage, .micro_batch = micro_batch};
}

}  // namespace

std::vector<Instruction> order_naive(int rank, int num_micro_batches) { return order_1f1b(rank, num_micro_batches, 1); }

std::vector<Instruction> order_gpipe(int rank, int num_micro_batches) {
  return order_1f1b(rank, num_micro_batches, num_micro_batches);
}

std::vector<Instruction> order_1f1b(int rank, int num_micro_batches, int most_in_flight) {
  std::vector<Instruction> order;
  int forward = 0;
  for (int backward = 0; backward < num_micro_batches; ++backward) {
    for (; forward < std::min(num_micro_batches, backward + most_in_flight); ++forward) {
      order.push_back(compute(OpCode::kForward, rank, forward));
    }
    order.push_back(compute(OpCode::kBackward, rank, backward));
  }
  return order;
}

std::vector<Instruction> order_zero_bubble(int rank, int num_micro_batches, int most_in_flight, int delay) {
  std::vector<Instruction> order;
  int weight = 0;
  for (const Instruction& instruction : order_1f1b(rank, num_micro_batches, most_in_flight)) {
    if (instruction.op == OpCode::kForward) {
      order.push_back(instruction);
      continue;
    }
    order.push_back(compute(OpCode::kBackwardInput, rank, instruction.micro_batch));
    if (instruction.micro_batch >= delay) order.push_back(compute(OpCode::kWeightGrad, rank, weight++));
  }
  while (weight < num_micro_batches) order.push_back(compute(OpCode::kWeightGrad, rank, weight++));
  return order;
}

/// Micro-batches go in rounds: each round passes through the rank's first stage, then its second, and so on; backward
/// passes use the same rounds, last stage first. A round has at least as many micro-batches as there are ranks, because
/// otherwise its first one would be due in the second stage before it has left the first; if ranks do not divide
/// micro-batches, the first rounds are longer.
std::vector<Instruction> order_interleaved(int rank, int num_ranks, int num_micro_batches, int interleave) {
  if (interleave == 1) return order_1f1b(rank, num_micro_batches, num_ranks - rank);
  const int num_rounds = std::max(num_micro_batches / num_ranks, 1);
  const int longest = (num_micro_batches + num_rounds - 1) / num_rounds;
  std::vector<Instruction> forward, backward;
  int first = 0;
  for (int round = 0; round < num_rounds; ++round) {
    const int last = first + num_micro_batches / num_rounds + (round < num_micro_batches % num_rounds ? 1 : 0);
    for (int chunk = 0; chunk < interleave; ++chunk) {
      for (int micro_batch = first; micro_batch < last; ++micro_batch) {
        forward.push_back(compute(OpCode::kForward, chunk * num_ranks + rank, micro_batch));
        backward.push_back(compute(OpCode::kBackward, (interleave - 1 - chunk) * num_ranks + rank, micro_batch));
      }
    }
    first = last;
  }
  // Forward passes until the first backward pass returns from the last stage.
  const size_t ahead = static_cast<size_t>((interleave - 1) * longest + 2 * (num_ranks - 1 - rank));
  std::vector<Instruction> order;
  size_t next = 0;
  for (size_t at = 0; at < backward.size(); ++at) {
    while (next < std::min(forward.size(), at + ahead + 1)) order.push_back(forward[next++]);
    order.push_back(backward[at]);
  }
  return order;
}

}  // namespace trireme
