#include "trireme/program/check/check_sums.h"

#include <fmt/format.h>

#include <bit>

#include "trireme/base/error.h"

namespace trireme {

std::string PartialSum::to_string() const {
  if (empty()) return "nothing";
  if (last - first == 1) return fmt::format("micro-batch {}", first);
  return fmt::format("micro-batches {} to {}", first, last - 1);
}

std::optional<PartialSum> SumTree::add(PartialSum a, PartialSum b) const {
  if (a.empty() || b.empty() || a.last != b.first) return std::nullopt;
  const int base = a.first / per_update_ * per_update_;
  if (b.last > base + per_update_) return std::nullopt;
  const int first = a.first - base, split = a.last - base, last = b.last - base;
  const auto is_edge = [this](int n) { return n % leaf_size_ == 0; };
  const PartialSum sum{a.first, b.last};
  // Within a leaf: one more micro-batch, added to the sum from the leaf's start.
  if (is_edge(first) && last - split == 1 && (last - 1) / leaf_size_ == first / leaf_size_) return sum;
  if (!is_edge(first) || !is_edge(split) || !is_edge(last)) return std::nullopt;
  const bool siblings = are_siblings(per_update_ / leaf_size_, {first / leaf_size_, split / leaf_size_},
                                     {split / leaf_size_, last / leaf_size_});
  return siblings ? std::optional(sum) : std::nullopt;
}

PartialSum SumTree::across(const CrossRankSum& how, std::vector<PartialSum> sums) const {
  const auto add_to = [&](size_t into, size_t from) {
    if (into >= sums.size() || from >= sums.size()) throw Error("the replicas' sums are fewer than their additions");
    const auto sum = add(sums[into], sums[from]);
    if (!sum) {
      throw Error(fmt::format("the tree does not add {} and {}", sums[into].to_string(), sums[from].to_string()));
    }
    sums[into] = *sum;
  };
  if (sums.empty()) return {};
  if (!how.direct) {
    for (const Addition& addition : how.additions) {
      add_to(static_cast<size_t>(addition.into), static_cast<size_t>(addition.from));
    }
    return sums[0];
  }
  // The tree over replicas that an ordered all-reduce uses.
  const auto reduce = [&](const auto& self, size_t first, size_t last) -> void {
    if (last - first < 2) return;
    const size_t split = first + std::bit_floor(last - first - 1);
    self(self, first, split);
    self(self, split, last);
    add_to(first, split);
  };
  reduce(reduce, 0, sums.size());
  return sums[0];
}

}  // namespace trireme
