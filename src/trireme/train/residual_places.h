// What compression kept, for a training that is cut otherwise along tp than the one that saved it.
//
// [Note: Residuals of parts]
// A worker's residual has the shape of its gradient: with tensor parallelism it is of a part of the parameter, in the
// order in which that part lies. The parts of a replica together are the residual of the whole parameter, so they are
// put together in memory, replica by replica, and each new place takes its part: nothing is added, and no bit changes.
// Of a parameter that all places hold they have the same residual; the first one's counts. What replicas keep is theirs
// alone, and its sum is what matters when their number changes: [Note: Residuals].
//
// Pure data; not collective.
#pragma once

#include <string>
#include <vector>

#include "trireme/compress/state.h"
#include "trireme/parallel/tensor/layout_rules.h"

namespace trireme {

/// As a worker has saved it.
struct PlacedPiece {
  int replica = 0, place = 0;
  StatePiece piece;
};

/// A whole parameter.
struct WholeTensor {
  std::string name;
  std::vector<int64_t> sizes;
};

/// How a model is cut along tp.
struct PlaceCuts {
  int num_places = 1;
  LayoutRules rules = {};
};

/// The tensor that a piece is of: what its name has behind the last slash, but for the mark of a second use.
std::string tensor_of_piece(const std::string& piece_name);

/// Of `tensors`, what place `place` of `to` has of what the places of `from` have saved; by replica. What fits no part
/// of any place (the factors of powersgd) is left out, so that it starts from zero. Throws Error where a piece has
/// another size than the part.
std::vector<StatePieces> move_to_place(const std::vector<PlacedPiece>& saved, const std::vector<WholeTensor>& tensors,
                                       const PlaceCuts& from, const PlaceCuts& to, int place);

}  // namespace trireme
