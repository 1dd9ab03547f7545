#include "trireme/server/keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/optimizer/kernels.h"

namespace trireme::server {
namespace {

void check_key(const Key& key, size_t piece_elements) {
  if (key.count == 0) throw UsageError(fmt::format("key \"{}\" has no elements", key.name));
  if (key.row_width == 0) return;
  if (key.count % key.row_width != 0) {
    throw UsageError(
        fmt::format("key \"{}\" has {} elements, not whole rows of {}", key.name, key.count, key.row_width));
  }
  if (key.row_width > piece_elements) {
    throw UsageError(fmt::format("a row of key \"{}\" has {} elements, more than a piece ({})", key.name, key.row_width,
                                 piece_elements),
                     "make pieces larger, or push and pull the key whole");
  }
}

/// Whole rows; where they fit also whole blocks of squares, so that a norm has the bits that it has without rows.
size_t piece_size(const Key& key, size_t piece_elements) {
  if (key.row_width == 0) return piece_elements;
  const size_t both = std::lcm(key.row_width, kSquaresBlock), unit = both <= piece_elements ? both : key.row_width;
  return piece_elements / unit * unit;
}

}  // namespace

KeyTable::KeyTable(std::vector<Key> keys, size_t piece_elements, int num_servers)
    : keys_(std::move(keys)), num_servers_(num_servers) {
  if (keys_.empty()) throw UsageError("a parameter server without keys has nothing to do");
  for (uint32_t number = 0; number < keys_.size(); ++number) {
    const Key& key = keys_[number];
    if (!numbers_.emplace(key.name, number).second) {
      throw UsageError(fmt::format("two keys are called \"{}\"", key.name));
    }
    check_key(key, piece_elements);
    const size_t step = piece_size(key, piece_elements);
    const auto begin = static_cast<uint32_t>(pieces_.size());
    for (size_t first = 0; first < key.count; first += step) {
      pieces_.push_back({number, first, std::min(step, key.count - first), 0});
    }
    ranges_.push_back({begin, static_cast<uint32_t>(pieces_.size())});
  }
  if (static_cast<size_t>(num_servers) > pieces_.size()) {
    throw UsageError(fmt::format("{} servers for {} key{} in {} piece{} of at most {}: a server would have nothing",
                                 num_servers, keys_.size(), keys_.size() == 1 ? "" : "s", pieces_.size(),
                                 pieces_.size() == 1 ? "" : "s", format_bytes(piece_elements * sizeof(float))),
                     fmt::format("start at most {}, or make pieces smaller", pieces_.size()));
  }
  std::vector<size_t> order(pieces_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [this](size_t a, size_t b) { return pieces_[a].count > pieces_[b].count; });
  std::vector<size_t> loads(static_cast<size_t>(num_servers));
  for (const size_t number : order) {
    const auto least = std::min_element(loads.begin(), loads.end());
    *least += pieces_[number].count;
    pieces_[number].shard = static_cast<int>(least - loads.begin());
  }
}

uint32_t KeyTable::find(std::string_view name) const {
  if (const auto found = numbers_.find(name); found != numbers_.end()) return found->second;
  std::vector<std::string> names;
  for (const Key& key : keys_) names.push_back(key.name);
  const auto meant = nearest(name, names);
  throw UsageError(
      fmt::format("the servers have no key \"{}\"", name),
      meant ? fmt::format("did you mean \"{}\"?", *meant) : fmt::format("they have {} others", keys_.size()));
}

size_t KeyTable::num_squares(uint32_t piece) const {
  return (pieces_[piece].count + kSquaresBlock - 1) / kSquaresBlock;
}

}  // namespace trireme::server
