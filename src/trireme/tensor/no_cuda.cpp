// Devices in a build without CUDA: only the CPU.
#include "trireme/base/error.h"
#include "trireme/gpu/device.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/device_trace.h"

namespace trireme {

struct DeviceGraph::Inside {};
struct UploadLane::Inside {};

torch::Device open_device(const std::string& name, int local_rank) {
  if (name == "cuda") gpu::choose_device(local_rank);  // throws
  return torch::kCPU;
}

void attach_device(Communicator&, const torch::Device&) {}
void* current_stream(const torch::Device&) { return nullptr; }
void synchronize(const torch::Device&) {}
std::unique_ptr<Processor> make_processor(const torch::Device&, bool) { return nullptr; }
void copy_into(const torch::Tensor& to, const torch::Tensor& from) { to.copy_(from); }
DeviceMemory device_memory(const torch::Device&) { return {}; }

std::vector<DeviceWork> trace_device(const torch::Device&, const std::function<void()>& work) {
  work();
  return {};
}
std::vector<KernelTime> profile(const torch::Device&, const std::function<void()>& work) {
  work();
  return {};
}

DeviceGraph::DeviceGraph(torch::Device) {}
DeviceGraph::~DeviceGraph() = default;
void DeviceGraph::capture(const std::function<void()>&) { throw Error("this build has no GPU code"); }
void DeviceGraph::replay() { throw Error("this build has no GPU code"); }

UploadLane::UploadLane(torch::Device) {}
UploadLane::~UploadLane() = default;
void UploadLane::upload(const std::vector<Copy>&) { throw Error("this build has no GPU code"); }
void* UploadLane::stream() const { return nullptr; }
void UploadLane::take() {}
void UploadLane::done_with() {}
void UploadLane::wait() {}

}  // namespace trireme
