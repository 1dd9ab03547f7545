#include "trireme/program/schedules/play.h"

#include <algorithm>

#include "trireme/base/index.h"
#include "trireme/base/units.h"
#include "trireme/program/interpreter.h"

namespace trireme {
double time_of(const Instruction& instruction, const StageTimes& times) {
  const size_t stage = instruction.stage_index();
  if (instruction.op == OpCode::kForward || instruction.op == OpCode::kRecompute) return times.forward[stage];
  return (makes_input_gradient(instruction.op) ? times.backward[stage] : 0) +
         (makes_weight_gradient(instruction.op) ? times.weight[stage] : 0);
}

PlayedOrders play_orders(const std::vector<std::vector<Instruction>>& orders, const std::vector<int>& rank_of_stage,
                         int num_micro_batches, const StageTimes& times) {
  Interpreter interpreter(orders.size(), rank_of_stage, num_micro_batches);
  std::vector<double> arrival(interpreter.num_messages()), now(orders.size()), first(orders.size());
  PlayedOrders played;
  for (const std::vector<Instruction>& order : orders) played.end.emplace_back(order.size(), kNever);
  const auto list_of = [&](size_t rank) -> const std::vector<Instruction>& { return orders[rank]; };
  interpreter.advance(list_of, [&](size_t rank, const Instruction& i, const Dataflow& flow) {
    const double start = flow.input ? std::max(now[rank], arrival[flow.input.number]) : now[rank];
    const auto number = static_cast<size_t>(&i - orders[rank].data());
    if (number == 0) first[rank] = start;
    played.end[rank][number] = now[rank] = start + time_of(i, times);
    if (flow.output) arrival[flow.output.number] = now[rank] + (flow.output.travels ? times.comm[at(i.stage)] : 0);
    return true;
  });
  for (size_t rank = 0; rank < orders.size(); ++rank) {
    const double end = orders[rank].empty() ? 0 : played.end[rank].back();
    played.cost = std::max(played.cost, end - first[rank]);
  }
  return played;
}

}  // namespace trireme
