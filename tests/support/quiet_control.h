// A control plane for tests of single parts: nobody else is there, and it fails only when the test says so.
#pragma once

#include <atomic>

#include "trireme/comm/control/control.h"
#include "trireme/comm/host/waiter.h"

namespace trireme {

class QuietControl : public ControlPlane {
 public:
  const std::vector<Member>& members() const override { return members_; }
  RankProgress& progress() override { return progress_; }
  const Failure* failure() const noexcept override { return failure_.load(std::memory_order_acquire); }
  void report(const Failure& failure) noexcept override {
    reported_ = failure;
    failure_.store(&reported_, std::memory_order_release);
  }
  std::vector<RankStatus> survey(Deadline) override { return {}; }
  Socket connect(int, uint64_t, Deadline) override { return {}; }
  std::optional<Socket> accept(int, uint64_t) override { return std::nullopt; }
  void leave() noexcept override {}

  /// Gives up after `patience`.
  Waiter waiter(Clock::duration patience = std::chrono::seconds(20)) const {
    return Waiter(Clock::now() + patience, *this, cancelled, 0, 10);
  }

  std::atomic<bool> cancelled{false};

 private:
  std::vector<Member> members_;
  RankProgress progress_;
  Failure reported_;
  std::atomic<const Failure*> failure_{nullptr};
};

}  // namespace trireme
