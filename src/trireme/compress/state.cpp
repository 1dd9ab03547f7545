#include "trireme/compress/state.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme {
namespace {

/// The elements of a tensor that lie in [first, first + count) of the group: where they begin, and how many.
struct Overlap {
  size_t begin = 0, count = 0;
};

Overlap overlap(const TensorPart& part, size_t first, size_t count) {
  const size_t begin = std::max(part.offset, first);
  const size_t end = std::min(part.offset + part.count(), first + count);
  return begin < end ? Overlap{begin, end - begin} : Overlap{};
}

}  // namespace

void save_group(const GroupLayout& layout, const std::string& prefix, StateKind kind, std::span<const float> flat,
                size_t first, StatePieces& pieces) {
  for (const TensorPart& part : layout.parts) {
    const Overlap here = overlap(part, first, flat.size());
    if (here.count == 0) continue;
    const auto values = flat.subspan(here.begin - first, here.count);
    pieces.push_back(
        {prefix + part.name, kind, here.begin - part.offset, part.count(), {values.begin(), values.end()}});
  }
}

void load_group(const GroupLayout& layout, const std::string& prefix, std::span<const StatePieces> by_rank, int rank,
                int size, std::span<float> flat, size_t first) {
  std::fill(flat.begin(), flat.end(), 0.f);
  for (const TensorPart& part : layout.parts) {
    const std::string name = prefix + part.name;
    for (size_t old = 0; old < by_rank.size(); ++old) {
      for (const StatePiece& piece : by_rank[old]) {
        if (piece.name != name) continue;
        if (piece.total != part.count() || piece.first + piece.values.size() > piece.total) {
          throw Error(fmt::format("the saved state {} has elements {} to {} of {}, but the tensor has {}", name,
                                  piece.first, piece.first + piece.values.size(), piece.total, part.count()),
                      "it was saved for another model");
        }
        if (piece.kind == StateKind::kPerRank && residual_owner(static_cast<int>(old), size) != rank) continue;
        const size_t begin = part.offset + piece.first;
        const size_t from = std::max(begin, first), to = std::min(begin + piece.values.size(), first + flat.size());
        for (size_t at = from; at < to; ++at) {
          float& value = flat[at - first];
          const float saved = piece.values[at - begin];
          value = piece.kind == StateKind::kPerRank ? value + saved : saved;
        }
      }
    }
  }
}

}  // namespace trireme
