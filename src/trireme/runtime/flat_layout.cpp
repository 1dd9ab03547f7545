#include "trireme/runtime/flat_layout.h"

#include <algorithm>

#include "trireme/optimizer/kernels.h"

namespace trireme {
namespace {

constexpr int64_t kAlignment = 32;  // elements: 64 bytes in the shortest type

int64_t room_of(const FlatItem& item) { return (item.count + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

FlatLayout::FlatLayout(std::vector<FlatItem> items, const FlatLayoutOptions& options)
    : items_(std::move(items)), places_(items_.size()) {
  for (const bool shared : {true, false}) {
    for (size_t i = items_.size(); i-- > 0;) {
      if (items_[i].shared != shared) continue;
      add(i, groups_.size() <= 1 ? options.first_group_elements : options.group_elements, options.by_unit);
    }
  }
}

void FlatLayout::add(size_t item, int64_t limit, bool by_unit) {
  const FlatItem& own = items_[item];
  const auto is_closed = [&](const Group& group) {
    const FlatItem& last = items_[group.items.back()];
    if (group.shared != own.shared) return true;
    if (!own.shared) return group.size >= limit;
    if (own.alone || last.alone) return true;
    return group.size >= limit && (!by_unit || last.unit != own.unit);
  };
  if (groups_.empty() || is_closed(groups_.back())) groups_.push_back({size_, 0, own.shared, {}});
  Group& group = groups_.back();
  places_[item] = {size_, static_cast<int>(groups_.size()) - 1};
  group.items.push_back(item);
  group.size += room_of(own);
  size_ += room_of(own);
}

std::vector<int64_t> FlatLayout::cuts(int number, int num_parts) const {
  const Group& group = groups_[static_cast<size_t>(number)];
  constexpr auto kBlock = static_cast<int64_t>(kSquaresBlock);
  std::vector<int64_t> all = {0};
  for (int64_t part = 1; part < num_parts; ++part) {
    const int64_t ideal = group.size * part / num_parts;
    int64_t cut = group.size;
    for (const size_t i : group.items) {
      const int64_t begin = places_[i].offset - group.offset, end = begin + room_of(items_[i]);
      if (ideal >= end) continue;
      const int64_t nearest = begin + (ideal - begin + kBlock / 2) / kBlock * kBlock;
      cut = nearest - begin < items_[i].count ? nearest : end;
      break;
    }
    all.push_back(std::max(cut, all.back()));
  }
  all.push_back(group.size);
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
