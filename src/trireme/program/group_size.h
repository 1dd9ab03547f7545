// How many bytes of gradients form a group where the user does not say: one rule for the trainer and for whoever
// predicts it.
#pragma once

#include <algorithm>

namespace trireme {

/// `keeps_whole`: whole weights and gradients stay on the rank, whose gradients have `all_bytes`. Otherwise groups are
/// gathered or scattered, several at a time, which must be little beside what stays: each is at most a 128th.
inline double derived_group_bytes(bool keeps_whole, double all_bytes) {
  constexpr double kMost = 4 << 20;
  return keeps_whole ? kMost : std::clamp(all_bytes / 128, 1.0, kMost);
}

}  // namespace trireme
