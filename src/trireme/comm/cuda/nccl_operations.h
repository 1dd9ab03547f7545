// Operations over NCCL: between GPUs and between hosts.
//
// NCCL's own reductions are used where no order can show (integers, and sums of two) or none is asked for; else see
// [Note: Ordered sums by pieces].
#pragma once

#include "trireme/comm/cuda/nccl_link.h"
#include "trireme/comm/cuda/piece_operations.h"

namespace trireme {

class NcclOperations : public PieceOperations {
 public:
  NcclOperations(Communicator::Impl& impl, int device, std::unique_ptr<NcclLink> link);
  ~NcclOperations() override;

  std::unique_ptr<GpuOperations> split(Communicator* child, int color, int key) override;
  void abort() noexcept override;
  void check_health() override { link_->check_health(); }

 private:
  void transfer(const char* what, std::span<const Piece> pieces, const Check& check) override;
  bool do_natively(const GpuRequest& request, const Check& check) override;
  bool needs_order(const GpuRequest& request) const;

  std::unique_ptr<NcclLink> link_;
};

}  // namespace trireme
