// Operations made of messages between all members and of sums along the tree: what NCCL and MPI have in common.
//
// [Note: Ordered sums by pieces]
// A library's own reduction adds in an order of its own. An ordered one is therefore made of three steps, with the
// bytes of a ring: member r gets part r of everybody's data, adds it along the tree of [Note: Reduction order], and
// gives the sum to whoever needs it.
#pragma once

#include <functional>

#include "trireme/comm/cuda/gpu_backend.h"

namespace trireme {

class PieceOperations : public GpuBackend {
 public:
  /// `shows_scratch`: transfer() lets other processes open memory, which they cannot where it comes from CUDA's pools.
  PieceOperations(Communicator::Impl& impl, int device, bool shows_scratch);
  ~PieceOperations() override;

  void enqueue(const BoardCollectives::Call& call, const GpuRequest& request, GpuTask& task) override;

 protected:
  /// Called now and then while the host waits; throws to give up.
  using Check = std::function<void()>;
  /// What goes to a member and what comes from it.
  struct Piece {
    const std::byte* out = nullptr;
    size_t out_bytes = 0;
    std::byte* in = nullptr;
    size_t in_bytes = 0;
  };

  /// Makes the stream wait for the operands.
  virtual void await_operands(CudaTask& task);
  /// All pieces, by member, in the order of the stream; this member's own is empty. `what` names it in errors.
  virtual void transfer(const char* what, std::span<const Piece> pieces, const Check& check) = 0;
  /// Does the whole operation by a function of the library's own; false where it has none that is right.
  virtual bool do_natively(const GpuRequest&, const Check&) { return false; }

 private:
  void issue(const GpuRequest& request, const Check& check);
  /// A message to and from every member, as given by `piece(member)`.
  template <typename PieceOf>
  void send_all(const char* what, const Check& check, PieceOf piece);
  void reduce_in_order(const GpuRequest& request, const Check& check);
  void reduce_scatter_in_order(const GpuRequest& request, const Check& check);
  void sum(const GpuRequest& request, std::vector<const void*> sources, void* out, size_t count);
  std::byte* scratch(size_t num_bytes);
  void free_scratch();

  const bool shows_scratch_;
  void* scratch_ = nullptr;
  size_t scratch_bytes_ = 0;
};

}  // namespace trireme
