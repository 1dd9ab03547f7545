// Moves residuals of compression to another tensor-parallel degree than the one that saved them.
//
// [Note: Residuals of parts]
// A worker's residual has the shape of its gradient: with tensor parallelism, the shape of its part of the parameter,
// in that part's element order. The parts of a replica together form the residual of the whole parameter, so they are
// assembled in memory, replica by replica, and each new tp position takes its part: nothing is added, and no bit
// changes. If a parameter is replicated over tp, all positions have the same residual, and the first one's is used.
// Residuals of different replicas stay separate; when the number of replicas changes, only their sum is preserved:
// [Note: Residuals].
//
// Pure functions on data; not collective.
#pragma once

#include <string>
#include <vector>

#include "trireme/compress/state.h"
#include "trireme/parallel/tensor/layout_rules.h"

namespace trireme {

/// A piece as a worker has saved it.
struct PlacedPiece {
  int replica = 0, place = 0;
  StatePiece piece;
};

/// Name and sizes of a whole parameter.
struct WholeTensor {
  std::string name;
  std::vector<int64_t> sizes;
};

/// How a model is sharded along tp.
struct PlaceCuts {
  int num_places = 1;
  LayoutRules rules = {};
};

/// The tensor that a piece belongs to: its name after the last slash, without the mark of a second use.
std::string tensor_of_piece(const std::string& piece_name);

/// Returns, by replica, the pieces of `tensors` that tp position `place` of `to` needs, from what all positions of
/// `from` have saved. Pieces that no sharding fits (the factors of powersgd) are left out, so they start from zero.
/// Throws Error if a piece differs in size from the part it was saved for.
std::vector<StatePieces> move_to_place(const std::vector<PlacedPiece>& saved, const std::vector<WholeTensor>& tensors,
                                       const PlaceCuts& from, const PlaceCuts& to, int place);

}  // namespace trireme
