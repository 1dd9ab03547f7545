// Where tensors lie in flat memory: in groups that travel together, and which part of a group is whose.
//
// Groups follow the backward pass: the last tensors come first. Sharded tensors are in groups of their own, before the
// rest, and each such group is cut into as many parts as there are replicas, nearly equal. A cut never goes through one
// of the blocks of a tensor over which norms are summed (kSquaresBlock), so that sharding changes no bit of a norm.
// What a replica gets too much of one group it gets less of the next, so that the sums are equal up to a block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme {

struct FlatItem {
  int64_t count = 0;
  bool sharded = false;  ///< every replica keeps a part of it
  bool alone = false;    ///< where it is sharded: in a group of its own
  int unit = 0;          ///< where it is sharded by units: those of one unit are in one group
};

struct FlatLayoutOptions {
  int64_t bucket_elements = 1 << 20;        ///< groups are closed when they have reached this
  int64_t first_bucket_elements = 1 << 18;  ///< the first two are short, so that communication begins early
  bool by_unit = false;                     ///< a sharded group is closed between units only
};

class FlatLayout {
 public:
  /// `items` in the order of the forward pass. Each begins at a multiple of 32 elements.
  FlatLayout(std::vector<FlatItem> items, const FlatLayoutOptions& options);

  struct Place {
    int64_t offset = 0;  ///< in the whole
    int group = 0;
  };
  struct Group {
    int64_t offset = 0, size = 0;
    bool sharded = false;
    std::vector<size_t> items;  ///< as they lie
  };
  /// Elements first … first + count − 1 of an item, which lie `at` in its group.
  struct Range {
    size_t item = 0;
    int64_t first = 0, count = 0, at = 0;
  };

  const std::vector<FlatItem>& items() const { return items_; }
  const std::vector<Place>& places() const { return places_; }
  const std::vector<Group>& groups() const { return groups_; }
  int64_t size() const { return size_; }
  /// Where each of `num_parts` parts of a group begins, and the end of the last.
  std::vector<int64_t> cuts(int group, int num_parts) const;
  /// What lies in a part of a group; nothing of the gaps.
  std::vector<Range> ranges(int group, int64_t begin, int64_t end) const;

 private:
  void add(size_t item, int64_t limit, bool by_unit);
  int64_t cut_near(const Group& group, int64_t ideal) const;

  std::vector<FlatItem> items_;
  std::vector<Place> places_;
  std::vector<Group> groups_;
  int64_t size_ = 0;
};

}  // namespace trireme
