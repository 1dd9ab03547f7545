// Moves a tensor from a layout on one mesh to a layout on another: which elements go from which rank to which.
//
// [Note: Resharding]
// Links between two meshes are slow, links inside them are fast. So every element crosses once: ranks that hold the
// same elements each send a slice of them; ranks that need the same elements each receive a slice, and all-gather the
// rest.
//
//   {2}, replicate                   {3}, replicate
//   rank 0  abcdef  ── ab ────────▶  rank 0  ab     ┐
//                   ── c ──┐                        │
//   rank 1  abcdef  ── d ──┴──────▶  rank 1    cd   ├─ all-gather ─▶ abcdef
//                   ── ef ────────▶  rank 2      ef ┘
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/layout/placement.h"

namespace trireme {

/// The layout of a tensor on a mesh: one size and one placement per axis.
struct MeshSide {
  std::vector<int> axis_sizes;
  std::vector<Placement> placements;
  int num_ranks() const;
};

/// A block of elements: its start in the sender's slice and in the receiver's, and its length, in each dimension.
struct ReshardBox {
  std::vector<int64_t> from, to, lengths;
  int64_t count() const;
};

/// Ranks are numbered within each mesh, in row-major order. Boxes are stored one after another.
struct ReshardMessage {
  int from = 0, to = 0;
  std::vector<ReshardBox> boxes;
  int64_t count() const;
};

struct Resharding {
  std::vector<Placement> sent;  ///< how source ranks shard their parts further before sending, without communication
  std::vector<Placement> received;       ///< what the destination receives, before it is redistributed there as wanted
  std::vector<ReshardMessage> messages;  ///< sorted by sender, then by receiver
};

/// For a tensor with at least one dimension. Every element is in exactly one message. Throws UsageError for partial
/// sums, which must be reduced first, and for a tensor without dimensions.
Resharding plan_resharding(const MeshSide& from, const MeshSide& to, const std::vector<int64_t>& sizes);

/// Turns axes that replicate into shards where that needs no communication: evenly if possible, preferably along
/// dimensions that `like` shards.
std::vector<Placement> spread(const MeshSide& side, const std::vector<int64_t>& sizes,
                              const std::vector<Placement>& like = {});

}  // namespace trireme
