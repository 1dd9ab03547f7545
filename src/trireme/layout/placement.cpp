#include "trireme/layout/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "trireme/base/error.h"
#include "trireme/base/text.h"

namespace trireme {
namespace {

constexpr std::string_view kOpNames[] = {"sum", "average", "max", "min"};

int64_t weight(const Placement& shard) { return shard.ratio[0] + shard.ratio[1] + shard.ratio[2]; }

/// Units first … last − 1 of `count`, which belong to a rank.
struct Range {
  int64_t first, last;
};
Range balanced(int64_t count, int axis_size, int coordinate) {
  const int64_t least = count / axis_size, longer = count % axis_size;
  const int64_t first = coordinate * least + std::min<int64_t>(coordinate, longer);
  return {first, first + least + (coordinate < longer ? 1 : 0)};
}

[[noreturn]] void refuse(std::string_view text) {
  throw UsageError(fmt::format("\"{}\" is no placement", text),
                   "write replicate, shard(0), or partial(sum); average, max and min are partial too");
}

}  // namespace

Placement Placement::with_dim(int new_dim) const {
  Placement other = *this;
  other.dim = new_dim;
  return other;
}

std::string Placement::to_string() const {
  switch (kind) {
    case Kind::kReplicate:
      return "replicate";
    case Kind::kPartial:
      return fmt::format("partial({})", kOpNames[static_cast<size_t>(op)]);
    case Kind::kShard:
      break;
  }
  std::string text = fmt::format("shard({}", dim);
  if (stretches != 1) text += fmt::format(", stretches {}", stretches);
  if (ratio != Ratio{1, 0, 0}) text += fmt::format(", ratio {}:{}:{}", ratio[0], ratio[1], ratio[2]);
  if (unit != 1) text += fmt::format(", unit {}", unit);
  return text + ")";
}

Placement Placement::parse(std::string_view text) {
  std::string word;  // without spaces and brackets, in lower case
  for (const char c : text) {
    if (c != ' ' && c != '(' && c != ')') word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  if (word == "r" || word == "replicate") return replicate();
  if (word == "p" || word == "partial") return partial();
  if (word.starts_with("partial")) {
    for (size_t i = 0; i < std::size(kOpNames); ++i) {
      if (word.substr(7) == kOpNames[i]) return partial(static_cast<PartialOp>(i));
    }
    refuse(text);
  }
  const std::vector<std::string_view> parts = split(word, ',');
  const size_t prefix = word.starts_with("shard") ? 5 : word.starts_with("s") ? 1 : 0;
  if (prefix == 0) refuse(text);
  const auto number = [&]<typename Number>(std::string_view digits, Number& value) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size()) refuse(text);
  };
  Placement made = shard(0);
  number(parts[0].substr(prefix), made.dim);
  for (size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].starts_with("stretches")) {
      number(parts[i].substr(9), made.stretches);
    } else if (parts[i].starts_with("unit")) {
      number(parts[i].substr(4), made.unit);
    } else if (parts[i].starts_with("ratio")) {
      const std::vector<std::string_view> ratio = split(parts[i].substr(5), ':');
      if (ratio.size() != made.ratio.size()) refuse(text);
      for (size_t j = 0; j < ratio.size(); ++j) number(ratio[j], made.ratio[j]);
    } else {
      refuse(text);
    }
  }
  const auto is_bad = [](int16_t part) { return part < 0; };
  if (made.stretches < 1 || made.unit < 1 || made.ratio[0] < 1 ||
      std::any_of(made.ratio.begin(), made.ratio.end(), is_bad)) {
    refuse(text);
  }
  return made;
}

bool fits(const Placement& shard, int64_t extent) {
  return shard.stretches > 0 && shard.unit > 0 && extent % (shard.stretches * weight(shard) * shard.unit) == 0;
}

std::vector<Piece> pieces(const Placement& shard, int64_t extent, int axis_size, int coordinate) {
  std::vector<Piece> all;
  const int64_t per_part = extent / (shard.stretches * weight(shard));  // elements per part of the ratio
  int64_t start = 0;
  for (int64_t stretch = 0; stretch < shard.stretches; ++stretch) {
    for (const int64_t part : shard.ratio) {
      if (part == 0) continue;
      const Range own = balanced(part * per_part / shard.unit, axis_size, coordinate);
      all.push_back({start + own.first * shard.unit, (own.last - own.first) * shard.unit});
      start += part * per_part;
    }
  }
  return all;
}

int64_t local_extent(const Placement& shard, int64_t extent, int axis_size, int coordinate) {
  const int64_t per_part = extent / (shard.stretches * weight(shard));
  int64_t sum = 0;
  for (const int64_t part : shard.ratio) {
    if (part == 0) continue;
    const Range own = balanced(part * per_part / shard.unit, axis_size, coordinate);
    sum += (own.last - own.first) * shard.unit;
  }
  return sum * shard.stretches;
}

bool is_even(const Placement& shard, int64_t extent, int axis_size) {
  const int64_t per_part = extent / (shard.stretches * weight(shard));
  return std::all_of(shard.ratio.begin(), shard.ratio.end(),
                     [&](int64_t part) { return part * per_part / shard.unit % axis_size == 0; });
}

Placement canonical(Placement placement, int64_t extent, int axis_size) {
  if (axis_size == 1) return Placement::replicate();
  if (placement.is_shard() && is_even(placement, extent, axis_size)) placement.unit = 1;
  return placement;
}

}  // namespace trireme
