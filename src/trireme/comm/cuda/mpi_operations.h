// Operations over MPI that reads and writes GPU memory itself: between hosts whose network MPI knows best.
//
// MPI knows nothing of streams. So whoever gives an operation to it waits until the GPU has written the operands, and
// then until MPI has moved them; a blocking call does it on the caller's thread, one that was started on the thread of
// operations. Reductions are ordered: [Note: Ordered sums by pieces].
#pragma once

#include "trireme/comm/cuda/piece_operations.h"

namespace trireme {

class MpiOperations : public PieceOperations {
 public:
  /// The world is joined over MPI, and RankContext::links_take_gpu_memory.
  MpiOperations(Communicator::Impl& impl, int device);

  std::unique_ptr<GpuOperations> split(Communicator* child, int color, int key) override;
  void abort() noexcept override { set_unhealthy(); }

 private:
  void await_operands(CudaTask& task) override;
  void transfer(const char* what, std::span<const Piece> pieces, const Check& check) override;

  std::vector<std::unique_ptr<Link>> links_;  // by member; of operations alone, so that messages do not mix
};

}  // namespace trireme
