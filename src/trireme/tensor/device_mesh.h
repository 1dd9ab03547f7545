// A mesh with its ranks alive: communicators for each axis, where this rank is, and what was decided about operators.
//
// Owner: shared by all mesh tensors that lie on it; it must not outlive the communicator it was made from. Threads: one
// at a time (a rank's own; autograd's thread of a GPU takes turns with it). Making one is collective.
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

/// Placements of a tensor on a mesh, one an axis. Each exists once a mesh, so that pointers can be compared.
struct MeshLayout {
  std::vector<Placement> placements;
  bool is_replicated = false;  ///< on all axes
  bool has_partial = false;
  /// "{tp=2}: shard(0)".
  std::string text;
};

/// Collectives that redistributions have made on this rank so far.
struct MovementCounts {
  std::array<int64_t, 6> calls{};  ///< by Movement
  std::array<int64_t, 6> bytes{};  ///< that the rank held before the step
  int64_t calls_of(Movement movement) const { return calls[static_cast<size_t>(movement)]; }
  int64_t bytes_of(Movement movement) const { return bytes[static_cast<size_t>(movement)]; }
  /// Small sums of executions that are cut inside (softmax, losses).
  int64_t inner_calls = 0;
  int64_t inner_bytes = 0;
  /// Of the calls, those that went on in the background: [Note: In flight].
  int64_t started = 0;
  int64_t came_before = 0;  ///< of them, how many had ended when their result was needed
  double waited_s = 0;      ///< for those that had not
};

class DecisionCache;

class DeviceMesh : public std::enable_shared_from_this<DeviceMesh> {
 public:
  /// All ranks of `comm`, arranged as `mesh`; collective. Throws UsageError where the sizes differ.
  static std::shared_ptr<DeviceMesh> make(Communicator& comm, const Mesh& mesh);
  ~DeviceMesh();

  const Mesh& mesh() const { return mesh_; }
  int num_axes() const { return mesh_.num_axes(); }
  int rank() const { return rank_; }
  const std::vector<int>& axis_sizes() const { return axis_sizes_; }
  const std::vector<int>& coordinates() const { return coordinates_; }
  /// The ranks that differ from this one in the axis only.
  Communicator& axis(int index) { return *axes_[static_cast<size_t>(index)]; }

  /// Cuts of dimensions that `sizes` does not have, or that do not fit, are refused with UsageError.
  const MeshLayout* layout(std::vector<Placement> placements, const std::vector<int64_t>& sizes);
  const MeshLayout* replicated() const { return replicated_; }
  MovementCounts& counts() { return counts_; }
  /// Where finished sums of tensor-parallel layers go: to every rank, or cut along the sequence (dimension 1), so that
  /// norms, dropout and residuals are split, too.
  void set_sequence_parallel(bool on) { sequence_parallel_ = on; }
  bool sequence_parallel() const { return sequence_parallel_; }
  /// Random numbers of mesh tensors: `draw` gets a generator in the same state on every rank, and draws those of the
  /// whole tensor. It is torch's default generator, as rank 0 has it, so torch::manual_seed() decides, and the numbers
  /// are those of plain tensors in one process: [Note: One stream]. Collective, unless seed() was called.
  void draw_random(const std::function<void(const at::Generator&)>& draw);
  /// From here on the mesh draws from a generator of its own that begins with this seed, and leaves torch's alone. Call
  /// it with the same seed on every rank, before each forward that is to draw the same numbers again.
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
