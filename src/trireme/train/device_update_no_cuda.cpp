#include "trireme/base/error.h"
#include "trireme/train/device_update.h"

namespace trireme {

struct DeviceUpdate::Inside {};

DeviceUpdate::DeviceUpdate(const OptimizerConfig&, double, ParameterStore&, Optimizer&,
                           const std::function<torch::Tensor(size_t)>&) {
  throw Error("this build has no GPU code");
}
DeviceUpdate::~DeviceUpdate() = default;
void DeviceUpdate::prepare(int64_t, double, double) {}
void DeviceUpdate::set_norm_of_model(NormOfModel) {}
std::vector<double> DeviceUpdate::block_squares() { return {}; }
void DeviceUpdate::enqueue(const torch::Tensor&) {}
void DeviceUpdate::enqueue_update() {}
DeviceUpdate::Outcome DeviceUpdate::read() { return {}; }

}  // namespace trireme
