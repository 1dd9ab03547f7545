// Operations over NCCL: between GPUs and between hosts.
//
// NCCL's own reductions are used where no order can show (integers, and sums of two) or none is asked for.
//
// [Note: Ordered sums by pieces]
// A library's own reduction adds in an order of its own. An ordered one is therefore made of three steps, with the
// bytes of a ring: member r gets part r of everybody's data, adds it along the tree of [Note: Reduction order], and
// gives the sum to whoever needs it.
#pragma once

#include <functional>

#include "trireme/comm/cuda/gpu_backend.h"
#include "trireme/comm/cuda/nccl_link.h"

namespace trireme {

class NcclOperations : public GpuBackend {
 public:
  NcclOperations(Communicator::Impl& impl, int device, std::unique_ptr<NcclLink> link);
  ~NcclOperations() override;

  void enqueue(const BoardCollectives::Call& call, const GpuRequest& request, GpuTask& task) override;
  std::unique_ptr<GpuOperations> split(Communicator* child, int color, int key) override;
  void abort() noexcept override;
  void check_health() override { link_->check_health(); }

 private:
  /// Called now and then while the host waits; throws to give up.
  using Check = std::function<void()>;
  /// What goes to a member and what comes from it.
  struct Piece {
    const std::byte* out = nullptr;
    size_t out_bytes = 0;
    std::byte* in = nullptr;
    size_t in_bytes = 0;
  };

  void issue(const GpuRequest& request, const Check& check);
  /// Does the whole operation by a function of NCCL's own; false where it has none that is right.
  bool do_natively(const GpuRequest& request, const Check& check);
  bool needs_order(const GpuRequest& request) const;
  /// A message to and from every member, as given by `piece(member)`.
  template <typename PieceOf>
  void send_all(const char* what, const Check& check, PieceOf piece);
  /// All pieces, by member, in the order of the stream; this member's own is empty. `what` names it in errors.
  void transfer(const char* what, std::span<const Piece> pieces, const Check& check);
  void reduce_in_order(const GpuRequest& request, const Check& check);
  void reduce_scatter_in_order(const GpuRequest& request, const Check& check);
  void sum(const GpuRequest& request, std::vector<const void*> sources, void* out, size_t count);
  std::byte* scratch(size_t num_bytes);
  void free_scratch();

  std::unique_ptr<NcclLink> link_;
  void* scratch_ = nullptr;
  size_t scratch_bytes_ = 0;
};

}  // namespace trireme
