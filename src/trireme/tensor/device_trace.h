// What a GPU does while some work runs, kernel by kernel.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <vector>

#include "trireme/program/trace.h"

namespace trireme {

/// Everything that was started on the device before `work` is waited for, and so is the work itself. Nothing for the
/// CPU.
std::vector<DeviceWork> trace_device(const torch::Device& device, const std::function<void()>& work);

}  // namespace trireme
