// Waiting for a GPU, with a deadline. There in GPU builds only.
#pragma once

#include "trireme/gpu/types.h"

namespace trireme::gpu {

/// Returns when all that was started on the stream is done. Throws Error where a kernel failed, or where ten minutes
/// were not enough; `work` names it.
void wait_for(Stream stream, const char* work);

}  // namespace trireme::gpu
