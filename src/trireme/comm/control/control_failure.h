// The first failure that a process hears of, kept for good.
#pragma once

#include <atomic>
#include <memory>

#include "trireme/comm/control/control.h"

namespace trireme::control {

/// Thread-safe. The pointer that first() returns is valid as long as this object.
class FirstFailure {
 public:
  FirstFailure() = default;
  FirstFailure(const FirstFailure&) = delete;
  FirstFailure& operator=(const FirstFailure&) = delete;
  ~FirstFailure() { delete first_.load(); }

  const Failure* first() const noexcept { return first_.load(std::memory_order_acquire); }

  /// False when there was one already; that one stays.
  bool set(Failure failure) {
    if (first() != nullptr) return false;
    auto mine = std::make_unique<const Failure>(std::move(failure));
    const Failure* none = nullptr;
    if (!first_.compare_exchange_strong(none, mine.get(), std::memory_order_acq_rel)) return false;
    mine.release();
    return true;
  }

 private:
  std::atomic<const Failure*> first_{nullptr};
};

}  // namespace trireme::control
