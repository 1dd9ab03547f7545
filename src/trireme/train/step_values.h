// What is summed over the micro-batches of a step beside gradients: these numbers, then the statistics.
#pragma once

#include <cstdint>

namespace trireme {

enum StepValue : int64_t { kLoss, kStop, kNumValues };

}  // namespace trireme
