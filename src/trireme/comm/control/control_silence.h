// Who has been silent for too long, told fairly: time in which the listener itself was away does not count.
#pragma once

#include <algorithm>

#include "trireme/base/deadline.h"

namespace trireme::control {

/// A loop that means to wake every `period` notices here that it was stopped (SIGSTOP, a suspended machine, a starved
/// core). It then heard nobody through no fault of theirs, so everybody gets fresh credit.
class AbsenceDetector {
 public:
  AbsenceDetector(Clock::duration period, Clock::duration silence_limit, Clock::time_point now)
      : longest_(period + std::min<Clock::duration>(std::chrono::seconds(1), silence_limit / 2)), last_(now) {}

  /// Once a round. True when the loop was away.
  bool was_away(Clock::time_point now) {
    const bool away = now - last_ > longest_;
    last_ = now;
    return away;
  }

 private:
  Clock::duration longest_;
  Clock::time_point last_;
};

}  // namespace trireme::control
