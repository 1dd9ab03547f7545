// Compression on a GPU: the same messages as the host's, made and added where the gradients lie.
//
// Works on a stream of its own, beside what else the GPU does, or on a given one. There in GPU builds only.
#pragma once

#include <memory>
#include <optional>

#include "trireme/compress/processor.h"

namespace trireme {

/// For arrays on this device. finish() throws Error where a kernel failed or ten minutes were not enough.
std::unique_ptr<Processor> make_gpu_processor(int device, std::optional<void*> stream = std::nullopt);

}  // namespace trireme
