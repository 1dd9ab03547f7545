// Names of all-reduce algorithms, and the way back from a name that a person typed.
#include "trireme/comm/algorithm.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <vector>

#include "trireme/base/error.h"

namespace trireme {
namespace {

// In the order of the enumeration.
constexpr std::array<std::string_view, 12> kNames = {"auto",      "sequential",        "server",         "ring",
                                                     "parallel",  "recursive-halving", "farthest-first", "tree",
                                                     "butterfly", "ordered",           "two-level",      "in-place"};

static_assert(kNames.size() == static_cast<size_t>(Algorithm::kInPlace) + 1);

constexpr auto kAllButAuto = [] {
  std::array<Algorithm, kNames.size() - 1> all{};
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<Algorithm>(i + 1);
  return all;
}();

/// Insertions, deletions and replacements of one character, and swaps of neighbours, that turn `a` into `b`.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    before_last = last;
    last = row;
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
  }
  return row.back();
}

}  // namespace

std::string_view name_of(Algorithm algorithm) {
  const auto index = static_cast<size_t>(algorithm);
  return index < kNames.size() ? kNames[index] : "unknown";
}

Algorithm algorithm_named(std::string_view name) {
  std::string wanted(name);
  std::replace(wanted.begin(), wanted.end(), '_', '-');
  const auto found = std::find(kNames.begin(), kNames.end(), wanted);
  if (found != kNames.end()) return static_cast<Algorithm>(found - kNames.begin());

  const auto nearest = std::min_element(kNames.begin(), kNames.end(), [&](std::string_view a, std::string_view b) {
    return edit_distance(wanted, a) < edit_distance(wanted, b);
  });
  std::string list;
  for (std::string_view each : kNames) list.append(list.empty() ? "" : ", ").append(each);
  throw UsageError("no algorithm is named '" + std::string(name) + "'",
                   "did you mean '" + std::string(*nearest) + "'? The names are " + list + ".");
}

std::span<const Algorithm> all_algorithms() { return kAllButAuto; }

}  // namespace trireme
