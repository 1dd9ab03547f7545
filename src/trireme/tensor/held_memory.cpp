#include "trireme/tensor/held_memory.h"

#include <c10/core/Allocator.h>
#include <c10/util/Logging.h>

#include <algorithm>

namespace trireme {

class HeldMemory::Counter : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t num_bytes, size_t, size_t, c10::Device) override {
    now_ += num_bytes;
    most_ = std::max(most_, now_);
  }
  bool memoryProfilingEnabled() const override { return true; }

  int64_t now_ = 0, most_ = 0;
};

HeldMemory::HeldMemory() : counter_(std::make_shared<Counter>()), guard_(c10::DebugInfoKind::PROFILER_STATE, counter_) {
  // Otherwise libtorch warns about every older tensor that is freed while others are counted.
  FLAGS_caffe2_log_level = std::max<int>(FLAGS_caffe2_log_level, c10::GLOG_ERROR);
}

int64_t HeldMemory::now_bytes() const { return counter_->now_; }
int64_t HeldMemory::most_bytes() const { return counter_->most_; }

}  // namespace trireme
