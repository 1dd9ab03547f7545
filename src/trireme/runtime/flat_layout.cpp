#include "trireme/runtime/flat_layout.h"

#include <algorithm>

#include "trireme/optimizer/kernels.h"

namespace trireme {
namespace {

constexpr int64_t kAlignment = 32;  // elements: 64 bytes in the shortest dtype

int64_t room_of(const FlatItem& item) { return (item.count + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

FlatLayout::FlatLayout(std::vector<FlatItem> items, const FlatLayoutOptions& options)
    : items_(std::move(items)), places_(items_.size()) {
  for (const bool sharded : {true, false}) {
    for (size_t i = items_.size(); i-- > 0;) {
      if (items_[i].sharded != sharded) continue;
      add(i, groups_.size() <= 1 ? options.first_bucket_elements : options.bucket_elements, options.by_unit);
    }
  }
}

void FlatLayout::add(size_t item, int64_t limit, bool by_unit) {
  const FlatItem& own = items_[item];
  const auto is_closed = [&](const Group& group) {
    const FlatItem& last = items_[group.items.back()];
    if (group.sharded != own.sharded) return true;
    if (!own.sharded) return group.size >= limit;
    if (own.alone || last.alone) return true;
    return group.size >= limit && (!by_unit || last.unit != own.unit);
  };
  if (groups_.empty() || is_closed(groups_.back())) groups_.push_back({size_, 0, own.sharded, {}});
  Group& group = groups_.back();
  places_[item] = {size_, static_cast<int>(groups_.size()) - 1};
  group.items.push_back(item);
  group.size += room_of(own);
  size_ += room_of(own);
}

/// The cut nearest to `ideal` that is between blocks of a tensor or at its end.
int64_t FlatLayout::cut_near(const Group& group, int64_t ideal) const {
  constexpr auto kBlock = static_cast<int64_t>(kSquaresBlock);
  if (ideal <= 0) return 0;
  for (const size_t i : group.items) {
    const int64_t begin = places_[i].offset - group.offset, end = begin + room_of(items_[i]);
    if (ideal >= end) continue;
    const int64_t nearest = begin + (ideal - begin + kBlock / 2) / kBlock * kBlock;
    return nearest - begin < items_[i].count ? nearest : end;
  }
  return group.size;
}

std::vector<int64_t> FlatLayout::cuts(int number, int num_parts) const {
  const auto is_alone = [&](const Group& group) { return items_[group.items[0]].alone; };
  const bool alone = is_alone(groups_[static_cast<size_t>(number)]);
  std::vector<int64_t> all;
  // How far the parts of earlier groups begin before their ideal cuts; this group makes up for it. Groups of one tensor
  // each (`alone`) are counted separately, so that two of equal size are cut alike.
  std::vector<int64_t> behind(static_cast<size_t>(num_parts), 0);
  for (size_t before = alone ? static_cast<size_t>(number) : 0; before <= static_cast<size_t>(number); ++before) {
    const Group& group = groups_[before];
    if (is_alone(group) != alone) continue;
    all = {0};
    for (int64_t part = 1; part < num_parts; ++part) {
      int64_t& owed = behind[static_cast<size_t>(part)];
      const int64_t ideal = group.size * part / num_parts + owed;
      all.push_back(std::max(cut_near(group, ideal), all.back()));
      owed = ideal - all.back();
    }
    all.push_back(group.size);
  }
  return all;
}

std::vector<FlatLayout::Range> FlatLayout::ranges(int number, int64_t begin, int64_t end) const {
  const Group& group = groups_[static_cast<size_t>(number)];
  std::vector<Range> all;
  for (const size_t i : group.items) {
    const int64_t at = places_[i].offset - group.offset;
    const int64_t first = std::max(begin, at), last = std::min(end, at + items_[i].count);
    if (first < last) all.push_back({i, first - at, last - first, first});
  }
  return all;
}

}  // namespace trireme
