// The classes behind exchange.h, one a family. For this folder.
#pragma once

#include "trireme/compress/exchange.h"
#include "trireme/compress/residual.h"

namespace trireme {

std::unique_ptr<Exchange> make_block_exchange(Communicator& comm, const CompressionOptions& options, GroupLayout layout,
                                              Processor& processor);
std::unique_ptr<Exchange> make_gather_exchange(Communicator& comm, const CompressionOptions& options,
                                               GroupLayout layout, double fraction_of_gradient, Processor& processor);
std::unique_ptr<Exchange> make_low_rank_exchange(Communicator& comm, const CompressionOptions& options,
                                                 GroupLayout layout, Processor& processor);

/// Sends by dense sums, and keeps what it does not send where the method wants that.
class ResidualExchange : public Exchange {
 public:
  ResidualExchange(Communicator& comm, const CompressionOptions& options, GroupLayout layout, Processor& processor)
      : comm_(comm),
        processor_(processor),
        options_(options),
        layout_(std::move(layout)),
        residual_(layout_.count, "residual/", keeps_residual(options), processor) {}

  void save(StatePieces& pieces) const override { residual_.save(layout_, pieces); }
  void load(std::span<const StatePieces> by_rank) override {
    residual_.load(layout_, by_rank, comm_.rank(), comm_.size());
  }
  void rescale(float factor) override { residual_.rescale(factor); }
  uint64_t bytes_sent() const override { return bytes_sent_; }

 protected:
  /// For all_reduce().
  Array<float> host_shared_array(size_t count) {
    if (count == 0) return {processor_, 0};
    return {processor_.allocate_for(comm_, count * sizeof(float)), count};
  }
  void all_reduce(std::span<float> values) {
    if (values.empty()) return;  // on all ranks
    comm_.all_reduce(processor_.data_of(values), ReduceOp::kSum, processor_.call_options());
    bytes_sent_ += dense_sum_bytes(values.size_bytes(), comm_.size());
  }

  Communicator& comm_;
  Processor& processor_;
  CompressionOptions options_;
  GroupLayout layout_;
  Residual residual_;

 private:
  uint64_t bytes_sent_ = 0;
};

}  // namespace trireme
