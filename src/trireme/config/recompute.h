// What train.recompute asks for: the layers that the backward pass computes again instead of keeping what is inside.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme {

struct Recompute {
  bool attention = false;  ///< of every block, its attention alone
  bool all = false;
  std::vector<std::pair<int64_t, int64_t>> ranges;  ///< layers by number, first and last

  bool covers(int64_t layer) const;
  /// The largest number that is named, or -1.
  int64_t last() const;
  bool operator==(const Recompute&) const = default;
};

/// "none", "full", "selective", or numbers such as "0-3,7". Throws UsageError that says what is expected.
Recompute parse_recompute(std::string_view text);

}  // namespace trireme
