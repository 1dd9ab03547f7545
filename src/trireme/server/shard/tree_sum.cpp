#include "trireme/server/shard/tree_sum.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "trireme/comm/reduce/reduce.h"
#include "trireme/optimizer/kernels.h"

namespace trireme::server {
namespace {

int split_of(LeafRange branch) {
  return branch.first + static_cast<int>(std::bit_floor(static_cast<unsigned>(branch.last - branch.first - 1)));
}

void add_floats(float* out, const float* a, const float* b, size_t count) {
  trireme::combine(ReduceOp::kSum, DataType::kFloat, out, a, b, count);
}

/// The union of the rows; those of both are added.
void merge_rows(const Partial& left, const Partial& right, size_t width, Partial& out) {
  out.rows.reserve(left.rows.size() + right.rows.size());
  std::set_union(left.rows.begin(), left.rows.end(), right.rows.begin(), right.rows.end(),
                 std::back_inserter(out.rows));
  out.values = Block(out.rows.size() * width * sizeof(float));
  size_t l = 0, r = 0;
  for (size_t i = 0; i < out.rows.size(); ++i) {
    float* to = out.values.floats() + i * width;
    const bool in_left = l < left.rows.size() && left.rows[l] == out.rows[i];
    const bool in_right = r < right.rows.size() && right.rows[r] == out.rows[i];
    const float* a = left.values.floats() + l * width;
    const float* b = right.values.floats() + r * width;
    if (in_left && in_right) {
      add_floats(to, a, b, width);
    } else {
      std::copy_n(in_left ? a : b, width, to);
    }
    l += in_left;
    r += in_right;
  }
}

}  // namespace

bool is_branch(int num_leaves, LeafRange leaves) {
  LeafRange branch{0, num_leaves};
  if (leaves.first < 0 || leaves.first >= leaves.last || leaves.last > num_leaves) return false;
  while (branch != leaves) {
    if (branch.last - branch.first == 1) return false;
    const int split = split_of(branch);
    if (leaves.last <= split) {
      branch.last = split;
    } else if (leaves.first >= split) {
      branch.first = split;
    } else {
      return false;
    }
  }
  return true;
}

Partial sort_rows(LeafRange leaves, const std::vector<uint64_t>& rows, const float* values, size_t row_width) {
  std::vector<size_t> order(rows.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rows[a] < rows[b]; });
  Partial out{leaves, Block(rows.size() * row_width * sizeof(float)), {}};
  for (const size_t i : order) {
    const float* from = values + i * row_width;
    const bool again = !out.rows.empty() && out.rows.back() == rows[i];
    if (!again) out.rows.push_back(rows[i]);
    float* to = out.values.floats() + (out.rows.size() - 1) * row_width;
    if (again) {
      add_floats(to, to, from, row_width);
    } else {
      std::copy_n(from, row_width, to);
    }
  }
  return out;
}

void append_row_squares(const Partial& sum, size_t row_width, size_t count, std::vector<double>& out) {
  const size_t first = out.size();
  out.resize(first + (count + kSquaresBlock - 1) / kSquaresBlock, 0.0);
  std::vector<float> block(kSquaresBlock, 0.f);
  std::vector<double> square;
  size_t current = SIZE_MAX;
  const auto flush = [&] {
    if (current == SIZE_MAX) return;
    square.clear();
    append_block_squares(block.data(), std::min(kSquaresBlock, count - current * kSquaresBlock), square);
    out[first + current] = square[0];
    std::fill(block.begin(), block.end(), 0.f);
  };
  for (size_t i = 0; i < sum.rows.size(); ++i) {
    const float* from = sum.values.floats() + i * row_width;
    const size_t begin = sum.rows[i] * row_width, end = begin + row_width;
    for (size_t at = begin; at < end;) {  // a row may lie over the edge of a block
      if (at / kSquaresBlock != current) flush();
      current = at / kSquaresBlock;
      const size_t stop = std::min(end, (current + 1) * kSquaresBlock);
      std::copy_n(from + (at - begin), stop - at, block.data() + at % kSquaresBlock);
      at = stop;
    }
  }
  flush();
}

bool TreeSum::overlaps(LeafRange leaves) const {
  const auto next = partials_.lower_bound(leaves.first);
  if (next != partials_.end() && next->second.leaves.first < leaves.last) return true;
  return next != partials_.begin() && std::prev(next)->second.leaves.last > leaves.first;
}

Partial TreeSum::combine(Partial left, Partial right) const {
  Partial out;
  out.leaves = {left.leaves.first, right.leaves.last};
  if (row_width_ > 0) {
    merge_rows(left, right, row_width_, out);
    return out;
  }
  const size_t count = left.values.num_floats();
  out.values = left.values.unique() ? left.values : right.values.unique() ? right.values : Block(count * sizeof(float));
  add_floats(out.values.floats(), left.values.floats(), right.values.floats(), count);
  return out;
}

void TreeSum::add(Partial partial) {
  const auto meet = [this](const Partial& left, const Partial& right) {
    return left.leaves.last == right.leaves.first && are_siblings(num_leaves_, left.leaves, right.leaves);
  };
  auto at = partials_.emplace(partial.leaves.first, std::move(partial)).first;
  for (;;) {
    auto left = at;
    if (const auto next = std::next(at); next == partials_.end() || !meet(at->second, next->second)) {
      if (at == partials_.begin()) return;
      left = std::prev(at);
      if (!meet(left->second, at->second)) return;
    }
    const auto right = std::next(left);
    left->second = combine(std::move(left->second), std::move(right->second));
    partials_.erase(right);
    at = left;
  }
}

bool TreeSum::sum_branch(LeafRange branch, Partial& out) {
  const auto found = partials_.lower_bound(branch.first);
  if (found == partials_.end() || found->second.leaves.first >= branch.last) return false;
  if (found->second.leaves == branch) {
    out = std::move(found->second);
    return true;
  }
  const int split = split_of(branch);
  Partial right;
  const bool has_left = sum_branch({branch.first, split}, out), has_right = sum_branch({split, branch.last}, right);
  if (has_left && has_right) {
    out = combine(std::move(out), std::move(right));
  } else if (has_right) {
    out = std::move(right);
  }
  return has_left || has_right;
}

const Partial& TreeSum::finish() {
  if (partials_.size() > 1) {
    Partial sum;
    sum_branch({0, num_leaves_}, sum);
    partials_.clear();
    partials_.emplace(sum.leaves.first, std::move(sum));
  }
  return partials_.begin()->second;
}

}  // namespace trireme::server
