#include "trireme/base/error.h"
#include "trireme/train/device_update.h"

namespace trireme {

struct DeviceUpdate::Inside {};

DeviceUpdate::DeviceUpdate(const Config& config, ModelPart& part) : WeightUpdate(config, part) {
  throw Error("this build has no GPU code");
}
DeviceUpdate::~DeviceUpdate() = default;
std::vector<double> DeviceUpdate::block_squares() { return {}; }
void DeviceUpdate::apply(int64_t, double, double) {}
void DeviceUpdate::prepare(int64_t, double, double) {}
void DeviceUpdate::enqueue(const torch::Tensor&, std::optional<double>) {}
DeviceUpdate::Outcome DeviceUpdate::read() { return {}; }

}  // namespace trireme
