#include "trireme/train/residual_places.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "trireme/base/error.h"

namespace trireme {
namespace {

const char* const kSecondUse = " (second use)";

/// A run of `count` elements of a whole tensor, from `first`, that are contiguous in a part too.
struct Stretch {
  size_t first = 0, count = 0;
};

/// What a tp position holds of a tensor, in that position's element order.
struct HeldPart {
  std::vector<Stretch> runs = {};
  size_t count = 0;
  bool is_whole = true;
};

HeldPart part_of(const WholeTensor& tensor, const PlaceCuts& cuts, int place) {
  Placement cut;
  if (cuts.num_places > 1) {
    cut = placements_for(tensor.name, cuts.rules, Mesh({{"tp", cuts.num_places}}))[0];
  }
  size_t outer = 1, inner = 1;
  for (size_t dim = 0; dim < tensor.sizes.size(); ++dim) {
    if (std::cmp_less(dim, cut.dim)) outer *= static_cast<size_t>(tensor.sizes[dim]);
    if (std::cmp_greater(dim, cut.dim)) inner *= static_cast<size_t>(tensor.sizes[dim]);
  }
  const int64_t extent = tensor.sizes.empty() ? 1 : tensor.sizes[static_cast<size_t>(cut.dim)];
  const std::vector<Piece> held =
      cut.is_shard() ? pieces(cut, extent, cuts.num_places, place) : std::vector<Piece>{{0, extent}};
  HeldPart part{.is_whole = !cut.is_shard()};
  for (size_t at = 0; at < outer; ++at) {
    for (const Piece& piece : held) {
      const auto first = static_cast<size_t>(piece.first), length = static_cast<size_t>(piece.length);
      part.runs.push_back({(at * static_cast<size_t>(extent) + first) * inner, length * inner});
      part.count += part.runs.back().count;
    }
  }
  return part;
}

/// Calls `move(of_whole, of_piece, count)` for each run that elements first … first + count − 1 of a part cover.
template <typename Move>
void for_each_run(const HeldPart& part, size_t first, size_t count, Move move) {
  size_t begin = 0;
  for (const Stretch& run : part.runs) {
    const size_t from = std::max(begin, first), to = std::min(begin + run.count, first + count);
    if (from < to) move(run.first + from - begin, from - first, to - from);
    begin += run.count;
  }
}

void check_fits(const StatePiece& piece, const HeldPart& part) {
  if (piece.total == part.count && piece.first + piece.values.size() <= piece.total) return;
  throw Error(fmt::format("the saved state {} has elements {} to {} of {}, but the part of the tensor has {}",
                          piece.name, piece.first, piece.first + piece.values.size(), piece.total, part.count),
              "it was saved for another model");
}

}  // namespace

std::string tensor_of_piece(const std::string& piece_name) {
  const size_t slash = piece_name.rfind('/');
  std::string name = slash == std::string::npos ? piece_name : piece_name.substr(slash + 1);
  if (name.ends_with(kSecondUse)) name.resize(name.size() - std::string(kSecondUse).size());
  return name;
}

std::vector<StatePieces> move_to_place(const std::vector<PlacedPiece>& saved, const std::vector<WholeTensor>& tensors,
                                       const PlaceCuts& from, const PlaceCuts& to, int place) {
  // An array that is reassembled from pieces: across replicas, unless each replica has one of its own.
  struct Array {
    const WholeTensor* tensor = nullptr;
    StateKind kind = StateKind::kPerRank;
    std::vector<float> whole;
  };
  std::map<std::pair<int, std::string>, Array> arrays;    // by replica and name
  std::map<std::pair<std::string, int>, HeldPart> parts;  // by tensor and tp position in `from`
  size_t num_replicas = 1;
  for (const auto& [replica, old_place, piece] : saved) {
    num_replicas = std::max(num_replicas, static_cast<size_t>(replica) + 1);
    const auto tensor = std::find_if(tensors.begin(), tensors.end(),
                                     [name = tensor_of_piece(piece.name)](auto& each) { return each.name == name; });
    if (tensor == tensors.end() || piece.kind == StateKind::kReplicated) continue;
    const auto [known, is_new] = parts.try_emplace({tensor->name, old_place});
    if (is_new) known->second = part_of(*tensor, from, old_place);
    const HeldPart& part = known->second;
    if (part.is_whole && old_place > 0) continue;
    check_fits(piece, part);
    Array& array = arrays[{piece.kind == StateKind::kPerRank ? replica : 0, piece.name}];
    if (!array.tensor) {
      size_t count = 1;
      for (const int64_t size : tensor->sizes) count *= static_cast<size_t>(size);
      array = {&*tensor, piece.kind, std::vector<float>(count, 0.f)};
    }
    for_each_run(part, piece.first, piece.values.size(), [&](size_t of_whole, size_t of_piece, size_t count) {
      std::copy_n(piece.values.data() + of_piece, count, array.whole.data() + of_whole);
    });
  }
  std::vector<StatePieces> by_replica(num_replicas);
  for (const auto& [id, array] : arrays) {
    const HeldPart part = part_of(*array.tensor, to, place);
    StatePiece own{id.second, array.kind, 0, part.count, std::vector<float>(part.count)};
    for_each_run(part, 0, part.count, [&](size_t of_whole, size_t of_part, size_t count) {
      std::copy_n(array.whole.data() + of_whole, count, own.values.data() + of_part);
    });
    by_replica[static_cast<size_t>(id.first)].push_back(std::move(own));
  }
  return by_replica;
}

}  // namespace trireme
