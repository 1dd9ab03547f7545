// Forward passes alone as a program: evaluation and prediction, of any length.
#pragma once

#include <optional>

#include "trireme/program/step.h"

namespace trireme {

/// What a rank does to pass `num_passes` micro-batches of each lane through the stages of `shape`. Those of lane k are
/// numbered from k · num_passes on. It has no update, and no gradients.
Program forward_program_of(const StepShape& shape, int num_passes, int pipeline_rank, int replica);
/// Of all ranks, in the order that check_programs() takes.
std::vector<Program> forward_programs_of(const StepShape& shape, int num_passes);

}  // namespace trireme
