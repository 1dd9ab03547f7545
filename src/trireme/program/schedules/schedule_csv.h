// Schedules as CSV, in the format of PyTorch's pipelining schedules: one row per rank, one cell per action.
//
// A cell is stage, action, micro-batch: 0F0 (forward), 1B2 (backward), 1I2 (backward for inputs), 1W2 (for weights),
// and in a schedule that places messages itself 0SEND_F0, 1RECV_F0, 1SEND_B0, 0RECV_B0. Empty cells, which PyTorch
// writes for idle time, are ignored, and so are UNSHARD, RESHARD and REDUCE_GRAD. A stage belongs to the rank in whose
// row it appears.
#pragma once

#include <string>
#include <string_view>

#include "trireme/program/schedules/schedule.h"

namespace trireme {

std::string schedule_to_csv(const Schedule& schedule);
/// Throws UsageError that names row, column and word. The result may still be a schedule that cannot run: check it.
Schedule schedule_from_csv(std::string_view csv);
/// Reads a file. Throws as schedule_from_csv(), with the file's name; SystemError if it cannot be read.
Schedule read_schedule(const std::string& path);
/// The computations and messages of one replica's programs, as a schedule that can be written.
Schedule schedule_of(const std::vector<Program>& programs);

}  // namespace trireme
