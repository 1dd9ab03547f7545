// Where a GPU's time goes, by libtorch's own profiler.
#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <map>

#include "trireme/tensor/device.h"

namespace trireme {

std::vector<KernelTime> profile(const torch::Device& device, const std::function<void()>& work) {
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
  work();
  synchronize(device);
  const auto result = torch::autograd::profiler::disableProfiler();
  std::map<std::string, KernelTime> by_name;
  for (const auto& event : result->events()) {
    if (event.deviceType() != c10::DeviceType::CUDA) continue;
    KernelTime& kernel = by_name[event.name()];
    kernel.name = event.name();
    kernel.us += static_cast<double>(event.durationNs()) / 1000;
    ++kernel.count;
  }
  std::vector<KernelTime> kernels;
  for (auto& [name, kernel] : by_name) kernels.push_back(std::move(kernel));
  std::sort(kernels.begin(), kernels.end(), [](const auto& a, const auto& b) { return a.us > b.us; });
  return kernels;
}

}  // namespace trireme
