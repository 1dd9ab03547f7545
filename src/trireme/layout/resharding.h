// From a layout on one mesh to a layout on another mesh: which elements go from which rank to which.
//
// [Note: Resharding]
// Between two meshes links are slow, inside them they are fast. So every element crosses once: ranks that hold the same
// elements send a slice of them each, ranks that need the same receive a slice each, and gather the rest among
// themselves.
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

/// How a tensor lies on a mesh: one size and one placement an axis.
struct MeshSide {
  std::vector<int> axis_sizes;
  std::vector<Placement> placements;
  int num_ranks() const;
};

/// A block of elements: where it begins in the sender's slice, where in the receiver's, and how long it is, in each
/// dimension.
struct ReshardBox {
  std::vector<int64_t> from, to, lengths;
  int64_t count() const;
};

/// Ranks are counted in each mesh, row by row. Boxes lie one after another.
struct ReshardMessage {
  int from = 0, to = 0;
  std::vector<ReshardBox> boxes;
  int64_t count() const;
};

struct Resharding {
  std::vector<Placement> sent;           ///< what ranks of the source cut their parts to; nothing moves for it
  std::vector<Placement> received;       ///< what comes to the destination; redistributed there it is what is wanted
  std::vector<ReshardMessage> messages;  ///< by sender, then by receiver
};

/// Of a tensor with at least one dimension. Every element is in one message. Throws UsageError for partial sums, which
/// are finished before they leave, and for a tensor without dimensions.
Resharding plan_resharding(const MeshSide& from, const MeshSide& to, const std::vector<int64_t>& sizes);

/// Axes that replicate cut instead, where that needs no movement: evenly if they can, along dimensions that `like` cuts
/// rather than others.
std::vector<Placement> spread(const MeshSide& side, const std::vector<int64_t>& sizes,
                              const std::vector<Placement>& like = {});

}  // namespace trireme
