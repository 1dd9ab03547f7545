#include "trireme/comm/cuda/mpi_operations.h"

#include <fmt/format.h>

#include <thread>

namespace trireme {
namespace {

constexpr uint64_t kChannelOfOperations = 0x6d70692067707521ull;

/// Looks often at first, then leaves the core to others.
class Patience {
 public:
  void wait() {
    if (++looks_ > 2000) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }

 private:
  int looks_ = 0;
};

}  // namespace

MpiOperations::MpiOperations(Communicator::Impl& impl, int device) : PieceOperations(impl, device, true) {
  for (int member = 0; member < size(); ++member) {
    links_.push_back(member == rank()
                         ? nullptr
                         : impl.context->make_remote_link(impl.group.world_ranks[static_cast<size_t>(member)],
                                                          impl.group.id ^ kChannelOfOperations));
  }
}

std::unique_ptr<GpuOperations> MpiOperations::split(Communicator* child, int, int) {
  return child == nullptr ? nullptr : std::make_unique<MpiOperations>(child->impl(), device_);
}

void MpiOperations::await_operands(CudaTask& task) {
  PieceOperations::await_operands(task);
  Patience patience;
  while (!task.inputs_are_ready()) {
    impl_->check_task(task);
    patience.wait();
  }
}

void MpiOperations::transfer(const char* what, std::span<const Piece> pieces, const Check& check) {
  Patience patience;
  while (cudaStreamQuery(stream_) == cudaErrorNotReady) {  // sums in front of it
    check();
    patience.wait();
  }
  gpu::check(cudaStreamQuery(stream_), what);
  std::vector<Piece> left(pieces.begin(), pieces.end());
  const auto progress = [&] {
    bool done = true;
    for (size_t member = 0; member < left.size(); ++member) {
      Piece& piece = left[member];
      if (piece.out_bytes > 0) {
        const size_t taken = links_[member]->write_some({piece.out, piece.out_bytes});
        piece.out += taken;
        piece.out_bytes -= taken;
      }
      if (piece.in_bytes > 0) {
        const size_t taken = links_[member]->read_some({piece.in, piece.in_bytes});
        piece.in += taken;
        piece.in_bytes -= taken;
      }
      done = done && piece.out_bytes == 0 && piece.in_bytes == 0;
    }
    return done;
  };
  while (!progress()) {
    check();
    patience.wait();
  }
}

}  // namespace trireme
