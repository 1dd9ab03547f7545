// Plays orders of computation against each other, before there is a program: when each computation would end.
#pragma once

#include <vector>

#include "trireme/program/schedules/schedule.h"

namespace trireme {

struct PlayedOrders {
  std::vector<std::vector<double>> end;  ///< of each rank's computations; infinite for those that would wait for ever
  double cost = 0;                       ///< the longest that a rank takes from its start to its end
};

/// Of a computation; one that is repeated takes as long as a forward pass.
double time_of(const Instruction& instruction, const StageTimes& times);

/// Messages take `times.comm` and are sent at once; weight gradients wait for nothing.
PlayedOrders play_orders(const std::vector<std::vector<Instruction>>& orders, const std::vector<int>& rank_of_stage,
                         int num_micro_batches, const StageTimes& times);

}  // namespace trireme
