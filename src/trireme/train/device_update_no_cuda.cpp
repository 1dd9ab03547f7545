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
void DeviceUpdate::set_sum_over_model(SumOverModel) {}
void DeviceUpdate::enqueue(const torch::Tensor&) {}
DeviceUpdate::Outcome DeviceUpdate::read() { return {}; }

}  // namespace trireme
