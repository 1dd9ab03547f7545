#include "trireme/mesh/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/base/text.h"

namespace trireme {
namespace {

std::string print(const std::vector<Axis>& axes) {
  std::vector<std::string> parts;
  for (const Axis& axis : axes) parts.push_back(fmt::format("{}={}", axis.name, axis.size));
  return "{" + join(parts, ", ") + "}";
}

bool is_name(std::string_view name) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto is_inside = [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); };
  return !name.empty() && is_letter(name[0]) && std::all_of(name.begin(), name.end(), is_inside);
}

/// The axes with sizes that multiply to `world_size` and stay closest to the wanted ones, by ratio.
class NearestSizes {
 public:
  NearestSizes(std::vector<Axis> axes, int world_size) : wanted_(axes), trial_(std::move(axes)), best_(trial_) {
    for (int64_t i = 1; i * i <= world_size; ++i) {
      if (world_size % i != 0) continue;
      divisors_.push_back(static_cast<int>(i));
      if (i * i != world_size) divisors_.push_back(static_cast<int>(world_size / i));
    }
    std::sort(divisors_.begin(), divisors_.end());
    search(static_cast<int>(trial_.size()) - 1, world_size, 0);
  }
  const std::vector<Axis>& best() const { return best_; }

 private:
  // From the last axis on, so that of equals the one that leaves the later (inner) axes alone is found first.
  void search(int axis, int left, double cost) {
    if (cost >= best_cost_) return;
    if (axis < 0) {
      if (left != 1) return;
      best_cost_ = cost;
      best_ = trial_;
      return;
    }
    const auto i = static_cast<size_t>(axis);
    const auto price = [&](int size) {
      // A hair more for a larger axis, to break ties the same way everywhere.
      return wanted_[i].size == Mesh::kRest ? 0.0 : std::fabs(std::log(double(size) / wanted_[i].size)) + 1e-9 * size;
    };
    std::vector<int> choices;
    for (const int divisor : divisors_) {
      if (left % divisor == 0) choices.push_back(divisor);
    }
    std::stable_sort(choices.begin(), choices.end(), [&](int a, int b) { return price(a) < price(b); });
    for (const int size : choices) {
      trial_[i].size = size;
      search(axis - 1, left / size, cost + price(size));
    }
  }

  std::vector<Axis> wanted_, trial_, best_;
  std::vector<int> divisors_;
  double best_cost_ = std::numeric_limits<double>::infinity();
};

/// Sizes are checked; kRest may remain.
void check(const std::vector<Axis>& axes) {
  int num_rests = 0;
  for (size_t i = 0; i < axes.size(); ++i) {
    const Axis& axis = axes[i];
    if (!is_name(axis.name)) {
      throw UsageError(fmt::format("mesh {}: \"{}\" is not a name of an axis", print(axes), axis.name),
                       "expected letters, digits and _ such as dp");
    }
    for (size_t j = 0; j < i; ++j) {
      if (axes[j].name == axis.name) {
        throw UsageError(fmt::format("mesh {}: axis {} is there twice", print(axes), axis.name));
      }
    }
    if (axis.size == Mesh::kRest) ++num_rests;
    if (axis.size < 1 && axis.size != Mesh::kRest) {
      throw UsageError(fmt::format("mesh {}: axis {} has size {}", print(axes), axis.name, axis.size),
                       "expected 1 or more, or -1 for the rest");
    }
  }
  if (num_rests > 1) throw UsageError(fmt::format("mesh {}: only one axis can be -1, the rest", print(axes)));
}

/// Without the axes of size kRest. At most a little above the largest int.
int64_t product(const std::vector<Axis>& axes) {
  constexpr int64_t kTooMany = int64_t{std::numeric_limits<int>::max()} + 1;
  int64_t result = 1;
  for (const Axis& axis : axes) {
    if (axis.size != Mesh::kRest) result = std::min(result * axis.size, kTooMany);
  }
  return result;
}

std::vector<Axis> with_rest(std::vector<Axis> axes, int world_size) {
  check(axes);
  if (world_size < 1) throw UsageError(fmt::format("mesh {}: a world of {} ranks", print(axes), world_size));
  const int64_t known = product(axes);
  const auto rest = std::find_if(axes.begin(), axes.end(), [](const Axis& axis) { return axis.size == Mesh::kRest; });
  if (rest == axes.end() ? known == world_size : world_size % known == 0) {
    if (rest != axes.end()) rest->size = static_cast<int>(world_size / known);
    return axes;
  }
  const std::string many = known > std::numeric_limits<int>::max() ? "too many" : std::to_string(known);
  const std::string cause =
      rest == axes.end() ? fmt::format("mesh {} needs {} ranks, but the world has {}", print(axes), many, world_size)
                         : fmt::format("mesh {}: a world of {} cannot be split by {}", print(axes), world_size, many);
  if (axes.empty()) throw UsageError(cause);
  throw UsageError(cause, "nearest: " + print(NearestSizes(axes, world_size).best()));
}

std::vector<Axis> parse_axes(std::string_view text) {
  std::string_view body = trim(text);
  if (body.size() >= 2 && body.front() == '{' && body.back() == '}') body = trim(body.substr(1, body.size() - 2));
  std::vector<Axis> axes;
  for (const std::string_view part : split(body, ',')) {
    const size_t equals = std::min(part.find('='), part.size());
    const std::string_view name = trim(part.substr(0, equals)),
                           number = trim(part.substr(std::min(equals + 1, part.size())));
    int size = 0;
    const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), size);
    if (number.empty() || stop != number.data() + number.size() || error != std::errc{}) {
      throw UsageError(fmt::format("mesh \"{}\": \"{}\" is not an axis and its size", text, part),
                       "expected a mesh such as dp=2,tp=4");
    }
    axes.push_back({std::string(name), size});
  }
  return axes;
}

}  // namespace

Mesh::Mesh(std::vector<Axis> axes) : axes_(std::move(axes)) {
  check(axes_);
  strides_.resize(axes_.size());
  const int64_t total = product(axes_);
  if (total > std::numeric_limits<int>::max())
    throw UsageError(fmt::format("mesh {} has too many ranks", print(axes_)));
  for (size_t i = axes_.size(); i-- > 0;) {
    if (axes_[i].size == kRest) {
      throw UsageError(fmt::format("mesh {}: -1, the rest, needs a world size", print(axes_)));
    }
    strides_[i] = axes_[i].size == 1 ? 0 : size_;
    size_ *= axes_[i].size;
  }
}

Mesh::Mesh(std::vector<Axis> axes, int world_size) : Mesh(with_rest(std::move(axes), world_size)) {}

Mesh Mesh::parse(std::string_view text) { return Mesh(parse_axes(text)); }
Mesh Mesh::parse(std::string_view text, int world_size) { return Mesh(parse_axes(text), world_size); }

bool Mesh::has(std::string_view axis) const {
  return std::any_of(axes_.begin(), axes_.end(), [&](const Axis& other) { return other.name == axis; });
}

int Mesh::axis_index(std::string_view axis) const {
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].name == axis) return static_cast<int>(i);
  }
  throw UsageError(fmt::format("mesh {} has no axis \"{}\"", to_string(), axis));
}

int Mesh::axis_size(std::string_view axis) const { return axes_[static_cast<size_t>(axis_index(axis))].size; }
int Mesh::degree(std::string_view axis) const { return has(axis) ? axis_size(axis) : 1; }

bool Mesh::contains(int rank) const {
  int left = rank - first_;
  if (rank < first_) return false;
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (strides_[i] == 0) continue;
    if (left / strides_[i] >= axes_[i].size) return false;
    left %= strides_[i];
  }
  return left == 0;
}

std::vector<int> Mesh::coordinates(int rank) const {
  if (!contains(rank)) throw UsageError(fmt::format("mesh {} has no rank {}", to_string(), rank));
  std::vector<int> result(axes_.size());
  int left = rank - first_;
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (strides_[i] == 0) continue;
    result[i] = left / strides_[i];
    left %= strides_[i];
  }
  return result;
}

int Mesh::coordinate(int rank, std::string_view axis) const {
  return coordinates(rank)[static_cast<size_t>(axis_index(axis))];
}

int Mesh::rank_at(std::span<const int> coordinates) const {
  if (coordinates.size() != axes_.size()) {
    throw UsageError(fmt::format("mesh {}: {} coordinates for {} axes", to_string(), coordinates.size(), axes_.size()));
  }
  int rank = first_;
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (coordinates[i] < 0 || coordinates[i] >= axes_[i].size) {
      throw UsageError(fmt::format("mesh {} has no {}={}", to_string(), axes_[i].name, coordinates[i]));
    }
    rank += coordinates[i] * strides_[i];
  }
  return rank;
}

std::vector<int> Mesh::ranks() const {
  std::vector<int> result{first_};
  for (size_t i = 0; i < axes_.size(); ++i) {
    std::vector<int> longer;
    longer.reserve(result.size() * static_cast<size_t>(axes_[i].size));
    for (const int rank : result) {
      for (int c = 0; c < axes_[i].size; ++c) longer.push_back(rank + c * strides_[i]);
    }
    result.swap(longer);
  }
  return result;
}

std::vector<int> Mesh::group_of(int rank, std::span<const std::string> axes) const {
  const std::vector<int> at = coordinates(rank);
  for (const std::string& axis : axes) axis_index(axis);  // throws for an unknown one
  Mesh part = *this;
  for (size_t i = 0; i < axes_.size(); ++i) {
    const std::string& name = axes_[i].name;
    if (std::find(axes.begin(), axes.end(), name) == axes.end()) part = part.sub_mesh(name, at[i]);
  }
  return part.ranks();
}

std::vector<int> Mesh::group_of(int rank, std::string_view axis) const {
  const std::string name(axis);
  return group_of(rank, std::span(&name, 1));
}

std::vector<std::vector<int>> Mesh::groups(std::span<const std::string> axes) const {
  for (const std::string& axis : axes) axis_index(axis);
  // The first rank of each group is at coordinate 0 of every axis named.
  Mesh firsts = *this;
  for (const Axis& axis : axes_) {
    if (std::find(axes.begin(), axes.end(), axis.name) != axes.end()) firsts = firsts.sub_mesh(axis.name, 0);
  }
  std::vector<std::vector<int>> result;
  for (const int rank : firsts.ranks()) result.push_back(group_of(rank, axes));
  return result;
}

std::vector<std::vector<int>> Mesh::groups(std::string_view axis) const {
  const std::string name(axis);
  return groups(std::span(&name, 1));
}

Mesh Mesh::sub_mesh(std::string_view axis, int coordinate) const {
  const auto i = static_cast<size_t>(axis_index(axis));
  if (coordinate < 0 || coordinate >= axes_[i].size) {
    throw UsageError(fmt::format("mesh {} has no {}={}", to_string(), axis, coordinate));
  }
  Mesh part = *this;
  part.first_ += coordinate * strides_[i];
  part.size_ /= axes_[i].size;
  part.axes_.erase(part.axes_.begin() + static_cast<ptrdiff_t>(i));
  part.strides_.erase(part.strides_.begin() + static_cast<ptrdiff_t>(i));
  return part;
}

std::string Mesh::to_string() const {
  const std::string text = print(axes_);
  if (*this == Mesh(axes_)) return text;
  constexpr size_t kMaxShown = 8;
  std::vector<std::string> shown;
  for (const int rank : ranks()) {
    shown.push_back(shown.size() < kMaxShown ? std::to_string(rank) : "…");
    if (shown.size() > kMaxShown) break;
  }
  return fmt::format("{} of {} {}", text, size_ == 1 ? "rank" : "ranks", join(shown, ", "));
}

size_t Mesh::hash() const {
  uint64_t value = 0xcbf29ce484222325u ^ static_cast<uint64_t>(first_);
  const auto mix = [&](uint64_t part) { value = (value ^ part) * 0x9e3779b97f4a7c15u, value ^= value >> 32; };
  for (size_t i = 0; i < axes_.size(); ++i) {
    mix(std::hash<std::string>{}(axes_[i].name));
    mix(static_cast<uint64_t>(axes_[i].size));
    mix(static_cast<uint64_t>(strides_[i]));
  }
  return static_cast<size_t>(value);
}

}  // namespace trireme
