// Ranks build their models themselves, and must build equal ones.
#pragma once

#include "trireme/comm/communicator.h"
#include "trireme/models/model.h"

namespace trireme {

/// Compares names, shapes and checksums of all parameters and buffers that have values. Collective. Throws UsageError
/// on all ranks, which names the first tensor that differs from rank 0's. Blocks as long as the slowest rank takes to
/// come.
void check_same_model(Communicator& comm, const Model& model);

}  // namespace trireme
