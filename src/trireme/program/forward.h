// Programs of forward passes only, for evaluation and prediction of any length.
#pragma once

#include <optional>

#include "trireme/program/step.h"

namespace trireme {

/// The program of a rank that passes `num_passes` micro-batches of each lane through the stages of `shape`. Lane k has
/// micro-batches k · num_passes to (k + 1) · num_passes - 1. No gradients, no update.
Program forward_program_of(const StepShape& shape, int num_passes, int pipeline_rank, int replica);
/// The programs of all ranks, in the order of check_programs().
std::vector<Program> forward_programs_of(const StepShape& shape, int num_passes);

}  // namespace trireme
