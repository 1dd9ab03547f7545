// Schedules as CSV, in the format of PyTorch's pipelining schedules: one row a rank, one cell an action.
//
// A cell is stage, action, micro-batch: 0F0 (forward), 1B2 (backward), 1I2 (backward for inputs), 1W2 (for weights),
// and where somebody places messages himself 0SEND_F0, 1RECV_F0, 1SEND_B0, 0RECV_B0. Empty cells, which PyTorch writes
// for idle time, mean nothing, and so do its UNSHARD, RESHARD and REDUCE_GRAD. A stage belongs to the rank in whose row
// it is found.
#pragma once

#include <string>
#include <string_view>

#include "trireme/program/schedules/schedule.h"

namespace trireme {

std::string schedule_to_csv(const Schedule& schedule);
/// Throws UsageError that names row, column and word. What is read may still be no schedule that can run: check it.
Schedule schedule_from_csv(std::string_view csv);
/// Of a file, with its name in the message; SystemError where it cannot be read.
Schedule read_schedule(const std::string& path);
/// The orders and messages of one replica's programs, as a schedule that can be written.
Schedule schedule_of(const std::vector<Program>& programs);

}  // namespace trireme
