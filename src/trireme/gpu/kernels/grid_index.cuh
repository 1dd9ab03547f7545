// From a thread's number to a row and a place in it, with 64-bit divisions once a block's start, not once an element.
#pragma once

#include <cstdint>

namespace trireme::gpu {

/// Items are numbered row after row, `width` of them a row. Made from the number of a block's first item.
struct ItemIndex {
  int64_t first_row;
  uint32_t first_place, width;

  __device__ ItemIndex(int64_t first_item, uint32_t width_)
      : first_row(first_item / width_), first_place(static_cast<uint32_t>(first_item % width_)), width(width_) {}

  /// Of the item `distance` after the first; returns rows after first_row.
  __device__ uint32_t find(uint32_t distance, uint32_t& place) const {
    const uint32_t item = first_place + distance;  // width < 2^31, distance a few thousand
    place = item % width;
    return item / width;
  }
};

}  // namespace trireme::gpu
