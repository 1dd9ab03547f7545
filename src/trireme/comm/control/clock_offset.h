// How far this rank's clock is from rank 0's.
#pragma once

#include "trireme/comm/communicator.h"

namespace trireme {

/// Seconds of Clock, for traces.
double clock_seconds();
/// What this rank must add to its clock_seconds() to get those of rank 0; within half of the fastest of a few round
/// trips. Collective; blocks with the communicator's timeout, and fails with CommError.
double clock_offset(Communicator& comm);

}  // namespace trireme
