// A point in time after which waiting must stop. Every wait in the project takes one.
#pragma once

#include <algorithm>
#include <chrono>

namespace trireme {

using Clock = std::chrono::steady_clock;

class Deadline {
 public:
  static Deadline after(Clock::duration time) { return Deadline(Clock::now() + time); }
  explicit Deadline(Clock::time_point at) : at_(at) {}

  bool expired() const { return Clock::now() >= at_; }
  Clock::time_point at() const { return at_; }
  /// Never negative.
  Clock::duration left() const { return std::max(at_ - Clock::now(), Clock::duration::zero()); }
  /// What is left, at most `cap`, in whole milliseconds rounded up: the argument of poll() and epoll_wait().
  int left_ms(int cap) const {
    return static_cast<int>(std::min<long long>(cap, std::chrono::ceil<std::chrono::milliseconds>(left()).count()));
  }

 private:
  Clock::time_point at_;
};

}  // namespace trireme
