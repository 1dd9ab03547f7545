// Names of all-reduce algorithms, and the way back from a name that a person typed.
#include "trireme/comm/algorithm.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/text.h"

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
