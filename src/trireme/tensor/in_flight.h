// A part of a mesh tensor that a collective is still filling: whoever needs it waits, everybody else goes on.
//
// [Note: In flight]
// A redistribution may be started instead of done: its last collective then runs on the communicator's thread (on a
// GPU: on its stream), and the mesh tensor that it fills exists already, with sizes, layout and memory.
// MeshSpec::local() is the only way to the memory, and lands the flight first. Ranks run the same program, so all start
// the same collectives in the same order; who lands one, and when, is a rank's own business. The additions are those of
// the blocking way: the bits are the same.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "trireme/tensor/device_mesh.h"

namespace trireme {

/// A collective that is ready to go, and what it makes of what comes.
struct Transfer {
  at::Tensor result;                            ///< contiguous; its values are there after `arrange`
  std::vector<at::Tensor> operands;             ///< what the collective reads and writes
  std::function<void(const CallOptions&)> run;  ///< blocking, on host memory
  std::function<Handle(const CallOptions&)> start;
  std::function<void()> arrange = {};  ///< from what has come into the result; may be empty
};

/// On the host at once; on a GPU the collective runs on a stream of the communicator's, and the current one waits.
at::Tensor complete(const Transfer& transfer);

/// Owner: the MeshSpec that it fills, shared by all shallow copies of the tensor. Threads: one at a time. Letting go of
/// it waits, since the collective writes to memory that it keeps alive.
class InFlight {
 public:
  /// Starts the transfer.
  InFlight(Transfer transfer, std::shared_ptr<DeviceMesh> mesh);
  ~InFlight();
  InFlight(const InFlight&) = delete;

  /// Returns when the result is there; on a GPU, when the current stream waits for it. Throws CommError.
  void land();

 private:
  Transfer transfer_;
  std::shared_ptr<DeviceMesh> mesh_;  ///< whose communicator works for it
  Handle handle_;
  bool landed_ = false;
};

/// A local part that is there, or will be.
struct StartedPart {
  at::Tensor part;
  std::shared_ptr<InFlight> flight;  ///< null: it is there
};

// For benchmarks.

/// From now on redistributions of this process prepare and arrange what moves, but nothing moves: speeds are right,
/// numbers are not. All ranks switch together. Also for sums inside operators.
void leave_out_collectives(bool on);

}  // namespace trireme
