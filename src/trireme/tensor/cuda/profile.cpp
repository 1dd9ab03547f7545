// Where a GPU's time goes, measured by libtorch's profiler.
#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "trireme/comm/control/clock_offset.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/device_trace.h"

namespace trireme {

std::vector<DeviceWork> trace_device(const torch::Device& device, const std::function<void()>& work) {
  namespace profiler = torch::profiler::impl;
  if (!device.is_cuda()) {
    work();
    return {};
  }
  const profiler::ProfilerConfig config(profiler::ProfilerState::KINETO);
  const std::set<profiler::ActivityType> activities = {profiler::ActivityType::CUDA};
  synchronize(device);
  torch::autograd::profiler::prepareProfiler(config, activities);
  torch::autograd::profiler::enableProfiler(config, activities);
  // The profiler uses the time of day, traces use the rank's clock.
  const double own_clock = clock_seconds();
  const double day = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  work();
  synchronize(device);
  const auto result = torch::autograd::profiler::disableProfiler();
  std::vector<DeviceWork> all;
  for (const auto& event : result->events()) {
    if (event.deviceType() != c10::DeviceType::CUDA) continue;
    const double start = 1e-9 * static_cast<double>(event.startNs()) - day + own_clock;
    all.push_back({event.name(), static_cast<int64_t>(event.deviceResourceId()), start,
                   start + 1e-9 * static_cast<double>(event.durationNs())});
  }
  return all;
}

std::vector<KernelTime> profile(const torch::Device& device, const std::function<void()>& work) {
  std::map<std::string, KernelTime> by_name;
  for (const DeviceWork& each : trace_device(device, work)) {
    KernelTime& kernel = by_name[each.name];
    kernel.name = each.name;
    kernel.us += 1e6 * (each.end - each.start);
    ++kernel.count;
  }
  std::vector<KernelTime> kernels;
  for (auto& [name, kernel] : by_name) kernels.push_back(std::move(kernel));
  std::sort(kernels.begin(), kernels.end(), [](const auto& a, const auto& b) { return a.us > b.us; });
  return kernels;
}

}  // namespace trireme
