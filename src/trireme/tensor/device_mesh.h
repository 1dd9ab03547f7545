// A mesh with live ranks: communicators for each axis, this rank's coordinates, and cached operator decisions.
//
// Owner: shared by all mesh tensors on it; it must not outlive the communicator it was made from. Threads: one at a
// time (the rank's own; autograd's GPU thread takes turns with it). make() is collective.
#pragma once

#include <ATen/core/Generator.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/layout/redistribution.h"
#include "trireme/mesh/mesh.h"

namespace trireme {

/// Placements of a tensor on a mesh, one per axis. Each exists once per mesh, so pointers can be compared.
struct MeshLayout {
  std::vector<Placement> placements;
  bool is_replicated = false;  ///< whether all axes replicate
  bool has_partial = false;
  /// "{tp=2}: shard(0)".
  std::string text;
};

/// Collectives of redistributions on this rank so far.
struct MovementCounts {
  std::array<int64_t, 6> calls{};  ///< indexed by Movement
  std::array<int64_t, 6> bytes{};  ///< bytes that the rank held before the step
  int64_t calls_of(Movement movement) const { return calls[static_cast<size_t>(movement)]; }
  int64_t bytes_of(Movement movement) const { return bytes[static_cast<size_t>(movement)]; }
  /// Small reductions inside sharded operators (softmax, losses).
  int64_t inner_calls = 0;
  int64_t inner_bytes = 0;
  /// Calls that continued in the background: [Note: In flight].
  int64_t started = 0;
  int64_t came_before = 0;  ///< how many of them had finished when their result was needed
  double waited_s = 0;      ///< time spent waiting for the others
};

class DecisionCache;

class DeviceMesh : public std::enable_shared_from_this<DeviceMesh> {
 public:
  /// Arranges all ranks of `comm` as `mesh`. Collective. Throws UsageError if the sizes differ.
  static std::shared_ptr<DeviceMesh> make(Communicator& comm, const Mesh& mesh);
  ~DeviceMesh();

  const Mesh& mesh() const { return mesh_; }
  int num_axes() const { return mesh_.num_axes(); }
  int rank() const { return rank_; }
  const std::vector<int>& axis_sizes() const { return axis_sizes_; }
  const std::vector<int>& coordinates() const { return coordinates_; }
  /// Ranks that differ from this one only along the axis.
  Communicator& axis(int index) { return *axes_[static_cast<size_t>(index)]; }

  /// Throws UsageError for shards of dimensions that `sizes` does not have, or that do not fit.
  const MeshLayout* layout(std::vector<Placement> placements, const std::vector<int64_t>& sizes);
  const MeshLayout* replicated() const { return replicated_; }
  MovementCounts& counts() { return counts_; }
  /// Whether finished sums of tensor-parallel layers are reduced to every rank, or scattered along the sequence (dim
  /// 1), so that norms, dropout and residuals are sharded, too.
  void set_sequence_parallel(bool on) { sequence_parallel_ = on; }
  bool sequence_parallel() const { return sequence_parallel_; }
  /// Random numbers of mesh tensors: `draw` gets a generator in the same state on every rank, and draws the numbers of
  /// the whole tensor. It is torch's default generator in rank 0's state, so torch::manual_seed() applies, and the
  /// numbers are those of plain tensors in one process: [Note: One stream]. Collective, unless seed() was called.
  void draw_random(const std::function<void(const at::Generator&)>& draw);
  /// From now on the mesh draws from its own generator with this seed, and leaves torch's alone. Call it with the same
  /// seed on every rank, before each forward that must draw the same numbers again.
  void seed(uint64_t seed);
  DecisionCache& decisions() { return *decisions_; }

 private:
  DeviceMesh(Communicator& comm, const Mesh& mesh);
  const MeshLayout* intern(std::vector<Placement> placements);

  Mesh mesh_;
  int rank_;
  std::vector<int> axis_sizes_, coordinates_;
  std::vector<std::unique_ptr<Communicator>> axes_;
  std::vector<std::unique_ptr<MeshLayout>> layouts_;
  std::unordered_map<std::string, const MeshLayout*> by_text_;
  const MeshLayout* replicated_ = nullptr;
  MovementCounts counts_;
  bool sequence_parallel_ = false;
  Communicator* comm_;
  at::Generator own_generator_;  ///< undefined until seed()
  std::unique_ptr<DecisionCache> decisions_;
};

}  // namespace trireme
