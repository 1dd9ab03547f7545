// A kernel that keeps a stream busy for a given time: for tests of deadlines and of overlap.
#pragma once

#include <chrono>

#include "trireme/gpu/types.h"

namespace trireme::gpu {

/// Enqueues one block that does nothing else.
void enqueue_spin(Stream stream, std::chrono::nanoseconds time);

}  // namespace trireme::gpu
