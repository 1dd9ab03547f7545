// Whether this build's machine code runs on the current device.
#pragma once

namespace trireme::gpu {

bool has_kernels_for_current_device();

}  // namespace trireme::gpu
