// Records what a GPU does while some work runs, kernel by kernel.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <vector>

#include "trireme/program/trace.h"

namespace trireme {

/// Waits for everything enqueued on the device before `work`, and for the work itself. Returns nothing for the CPU.
std::vector<DeviceWork> trace_device(const torch::Device& device, const std::function<void()>& work);

}  // namespace trireme
