// A part of a mesh tensor that a collective is still filling: whoever needs it waits, everybody else continues.
//
// [Note: In flight]
// A redistribution may be started instead of completed: its last collective then runs on the communicator's thread (on
// a GPU: on its stream), and the mesh tensor that it fills already exists, with sizes, layout and memory.
// MeshSpec::local() is the only way to the memory, and lands the flight first. Ranks run the same program, so all start
// the same collectives in the same order; when each rank lands one is up to that rank. The additions are the same as in
// the blocking version, and so are the bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "trireme/tensor/device_mesh.h"

namespace trireme {

/// A prepared collective, and how its result is assembled.
struct Transfer {
  at::Tensor result;                            ///< contiguous; complete after `arrange`
  std::vector<at::Tensor> operands;             ///< tensors that the collective reads and writes
  std::function<void(const CallOptions&)> run;  ///< blocking, on host memory
  std::function<Handle(const CallOptions&)> start;
  std::function<void()> arrange = {};  ///< moves received data into the result; may be empty
};

/// Blocks on the host; on a GPU the collective runs on the communicator's stream, and the current stream waits.
at::Tensor complete(const Transfer& transfer);

/// Owner: the MeshSpec that it fills, shared by all shallow copies of the tensor. Threads: one at a time. The
/// destructor waits, since the collective writes to memory that it keeps alive.
class InFlight {
 public:
  /// Starts the transfer.
  InFlight(Transfer transfer, std::shared_ptr<DeviceMesh> mesh);
  ~InFlight();
  InFlight(const InFlight&) = delete;

  /// Waits until the result is complete; on a GPU, makes the current stream wait for it. Throws CommError.
  void land();

 private:
  Transfer transfer_;
  std::shared_ptr<DeviceMesh> mesh_;  ///< its communicator runs the collective
  Handle handle_;
  bool landed_ = false;
};

/// A local part that is complete, or will be.
struct StartedPart {
  at::Tensor part;
  std::shared_ptr<InFlight> flight;  ///< null: it is complete
};

// For benchmarks.

/// While on, redistributions of this process prepare and arrange data but do not communicate, and neither do sums
/// inside operators: timings are right, values are not. All ranks must switch together.
void leave_out_collectives(bool on);

}  // namespace trireme
