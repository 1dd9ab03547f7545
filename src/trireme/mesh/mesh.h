// A mesh: the ranks arranged along named axes, such as {dp=2, tp=4}.
//
// A value: immutable, comparable, hashable, printable; a bad one cannot be built (UsageError says what is nearest).
// Ranks run through it in row-major order, the last axis fastest: in {dp=2, tp=4} rank 5 is at dp=1, tp=1.
#pragma once

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

struct Axis {
  std::string name;
  int size = 1;
  bool operator==(const Axis&) const = default;
};

class Mesh {
 public:
  /// A size that is "the rest": the world size over the other sizes. One axis at most.
  static constexpr int kRest = -1;

  /// No axes, one rank: 0.
  Mesh() = default;
  explicit Mesh(std::vector<Axis> axes);
  /// The sizes must multiply to `world_size`.
  Mesh(std::vector<Axis> axes, int world_size);
  /// "dp=2,tp=4"; the braces of to_string() may stay.
  static Mesh parse(std::string_view text);
  static Mesh parse(std::string_view text, int world_size);

  const std::vector<Axis>& axes() const { return axes_; }
  int num_axes() const { return static_cast<int>(axes_.size()); }
  /// Number of ranks.
  int size() const { return size_; }
  bool has(std::string_view axis) const;
  /// Throws UsageError for an axis that is not there, as all below do.
  int axis_index(std::string_view axis) const;
  int axis_size(std::string_view axis) const;
  /// 1 for an axis that is not there: code may ask for "tp" of any mesh.
  int degree(std::string_view axis) const;

  bool contains(int rank) const;
  /// Throws UsageError for a rank outside.
  std::vector<int> coordinates(int rank) const;
  int coordinate(int rank, std::string_view axis) const;
  /// One coordinate an axis.
  int rank_at(std::span<const int> coordinates) const;
  int rank_at(std::initializer_list<int> coordinates) const {
    return rank_at(std::span(coordinates.begin(), coordinates.size()));
  }
  /// All, in order.
  std::vector<int> ranks() const;

  /// The ranks that differ from `rank` in these axes only, in order, `rank` among them.
  std::vector<int> group_of(int rank, std::string_view axis) const;
  std::vector<int> group_of(int rank, std::span<const std::string> axes) const;
  /// All such groups, ordered by their first rank. Each rank is in one.
  std::vector<std::vector<int>> groups(std::string_view axis) const;
  std::vector<std::vector<int>> groups(std::span<const std::string> axes) const;

  /// The part where `axis` has this coordinate. It has the other axes; its ranks keep their numbers.
  Mesh sub_mesh(std::string_view axis, int coordinate) const;

  /// "{dp=2, tp=4}", and for a part of a mesh its ranks: "{dp=2} of ranks 1, 5".
  std::string to_string() const;
  bool operator==(const Mesh&) const = default;
  size_t hash() const;

 private:
  std::vector<Axis> axes_;
  std::vector<int> strides_;  // between neighbours along each axis; 0 where the size is 1
  int first_ = 0;             // the rank at the origin
  int size_ = 1;
};

}  // namespace trireme

template <>
struct std::hash<trireme::Mesh> {
  size_t operator()(const trireme::Mesh& mesh) const noexcept { return mesh.hash(); }
};
