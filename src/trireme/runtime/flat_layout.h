// The layout of tensors in flat memory: groups that are communicated at once, and the shard of each rank in a group.
//
// Groups follow the backward pass: the last tensors come first. Sharded tensors have groups of their own, before the
// rest, and each such group is cut into one shard per replica, of nearly equal size. Cuts respect the blocks of a
// tensor over which norms are summed (kSquaresBlock), so that sharding changes no bit of a norm. A replica that gets
// too much of one group gets less of the next, so that totals differ by at most a block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme {

struct FlatItem {
  int64_t count = 0;
  bool sharded = false;  ///< whether every replica keeps only a part of it
  bool alone = false;    ///< whether it has a group of its own; only used if sharded
  int unit = 0;          ///< items of one unit stay in one group; only used if sharded, with `by_unit`
};

struct FlatLayoutOptions {
  int64_t bucket_elements = 1 << 20;        ///< size at which a group is closed
  int64_t first_bucket_elements = 1 << 18;  ///< the same for the first group: short, so that communication begins early
  bool by_unit = false;                     ///< whether sharded groups are closed between units only
};

class FlatLayout {
 public:
  /// `items` in the order of the forward pass. Each starts at a multiple of 32 elements.
  FlatLayout(std::vector<FlatItem> items, const FlatLayoutOptions& options);

  struct Place {
    int64_t offset = 0;  ///< offset in the whole layout
    int group = 0;
  };
  struct Group {
    int64_t offset = 0, size = 0;
    bool sharded = false;
    std::vector<size_t> items;  ///< in the order of their offsets
  };
  /// Elements first … first + count − 1 of an item, which start at offset `at` of its group.
  struct Range {
    size_t item = 0;
    int64_t first = 0, count = 0, at = 0;
  };

  const std::vector<FlatItem>& items() const { return items_; }
  const std::vector<Place>& places() const { return places_; }
  const std::vector<Group>& groups() const { return groups_; }
  int64_t size() const { return size_; }
  /// Begin of each of `num_parts` parts of a group, and the end of the last.
  std::vector<int64_t> cuts(int group, int num_parts) const;
  /// The items, or parts of them, between two offsets of a group, without padding.
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
