#include "trireme/config/recompute.h"

#include <fmt/format.h>

#include <charconv>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/config/value.h"

namespace trireme {
namespace {

constexpr int64_t kMostLayers = 1'000'000;

/// Parses a whole number below kMostLayers; -1 for anything else.
int64_t number_of(std::string_view text) {
  int64_t number = -1;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end && number >= 0 && number < kMostLayers ? number : -1;
}

}  // namespace

Recompute parse_recompute(std::string_view text) {
  Recompute result;
  if (text == "none") return result;
  if (text == "full") return RecomputeKind::kFull;
  if (text == "selective") return RecomputeKind::kSelective;
  const auto parts = split(text.empty() ? std::string_view("-") : text, ',');
  for (const std::string_view part : parts) {
    const size_t dash = part.find('-');
    const int64_t first = number_of(trim(part.substr(0, dash)));
    const int64_t last = dash == std::string_view::npos ? first : number_of(trim(part.substr(dash + 1)));
    if (first < 0 || last < first) {
      throw wrong_key("train.recompute",
                      fmt::format("train.recompute = \"{}\" is not what can be computed again", printable(text)),
                      "give none, full, selective, or numbers of layers from 0, such as 0-3,7");
    }
    result.ranges.emplace_back(first, last);
  }
  return result;
}

}  // namespace trireme
