// What a build without CUDA says about GPUs.
#include "trireme/base/error.h"
#include "trireme/gpu/device.h"

namespace trireme::gpu {

Survey survey() {
  return {{}, "this build has no GPU code", "build with cmake --preset cuda, or use train.device = \"cpu\""};
}

Device choose_device(int) {
  const Survey found = survey();
  throw UsageError(found.problem, found.cure);
}

bool has_fp8(const Device&) { return false; }

}  // namespace trireme::gpu
