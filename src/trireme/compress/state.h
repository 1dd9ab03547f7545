// What compression remembers from step to step, as named pieces for a checkpoint, and how they go to other ranks.
//
// [Note: Residuals]
// A residual is gradient that was not sent yet. The residuals of all ranks together are what matters: when the number
// of ranks changes, the residual of old rank i goes to new rank i mod (new number), where it is added to what else
// comes there. So their sum stays, and with the same number of ranks every bit does.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/compress/group_layout.h"

namespace trireme {

enum class StateKind : uint8_t {
  kPerRank,     ///< every rank has one of its own: [Note: Residuals]
  kSharded,     ///< ranks have parts of one array
  kReplicated,  ///< the same on all ranks
};

/// `values` are elements first … of an array of `total`.
struct StatePiece {
  std::string name;
  StateKind kind = StateKind::kPerRank;
  size_t first = 0, total = 0;
  std::vector<float> values;
};
using StatePieces = std::vector<StatePiece>;

/// Where the residual of an old rank goes.
inline int residual_owner(int old_rank, int new_size) { return old_rank % new_size; }

/// Adds to `pieces` one for each tensor: prefix + its name. `flat` holds elements first … of the group.
void save_group(const GroupLayout& layout, const std::string& prefix, StateKind kind, std::span<const float> flat,
                size_t first, StatePieces& pieces);
/// The other way round, from the pieces of all old ranks: what this rank is to have. Zero where there is nothing.
/// Throws Error where a piece has another size than the tensor.
void load_group(const GroupLayout& layout, const std::string& prefix, std::span<const StatePieces> by_rank, int rank,
                int size, std::span<float> flat, size_t first);

}  // namespace trireme
