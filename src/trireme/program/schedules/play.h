// Simulates orders of computations before there is a program, to find out when each computation ends.
#pragma once

#include <vector>

#include "trireme/program/schedules/schedule.h"

namespace trireme {

struct PlayedOrders {
  std::vector<std::vector<double>> end;  ///< [rank][computation]; infinite if it waits forever
  double cost = 0;                       ///< longest time of one rank from its first start to its last end
};

/// Duration of a computation; a recomputation takes as long as a forward pass.
double time_of(const Instruction& instruction, const StageTimes& times);

/// Messages are sent at once and take `times.comm`; weight gradients do not wait.
PlayedOrders play_orders(const std::vector<std::vector<Instruction>>& orders, const std::vector<int>& rank_of_stage,
                         int num_micro_batches, const StageTimes& times);

}  // namespace trireme
