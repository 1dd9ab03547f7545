// Sums of chosen elements: all ranks gather what all have chosen and add it in the order of the ranks.
#include "trireme/compress/exchange_families.h"
#include "trireme/compress/message_encoders.h"

namespace trireme {
namespace {

class GatherExchange : public Exchange {
 public:
  GatherExchange(Communicator& comm, const CompressionOptions& options, GroupLayout layout, double fraction_of_gradient,
                 Processor& processor)
      : comm_(comm),
        processor_(processor),
        encoder_(make_sparse_encoder(options, std::move(layout), comm.rank(), comm.size(), fraction_of_gradient,
                                     processor)) {}

  void sum(std::span<float> values, uint64_t step) override {
    const std::span<uint8_t> own = encoder_->encode(values, step);
    const auto ranks = static_cast<size_t>(comm_.size());
    const size_t total = own.size() * ranks;  // messages of one step have the same size on all ranks
    if (gathered_.num_bytes() < total) gathered_ = processor_.allocate(total);
    const std::span<uint8_t> all(static_cast<uint8_t*>(gathered_.data()), total);
    const std::vector<size_t> counts(ranks, own.size());
    comm_.all_gather_v(processor_.data_of(own), processor_.data_of(all), counts, processor_.call_options());
    bytes_sent_ += own.size() * (ranks - 1);

    processor_.clear(values);
    for (size_t rank = 0; rank < ranks; ++rank) {
      processor_.add_sparse(all.subspan(rank * own.size(), own.size()), values);
    }
  }
  void save(StatePieces& pieces) const override { encoder_->save(pieces); }
  void load(std::span<const StatePieces> by_rank) override { encoder_->load(by_rank); }
  void rescale(float factor) override { encoder_->rescale(factor); }
  uint64_t bytes_sent() const override { return bytes_sent_; }

 private:
  Communicator& comm_;
  Processor& processor_;
  std::unique_ptr<SparseEncoder> encoder_;
  Buffer gathered_;
  uint64_t bytes_sent_ = 0;
};

}  // namespace

std::unique_ptr<Exchange> make_gather_exchange(Communicator& comm, const CompressionOptions& options,
                                               GroupLayout layout, double fraction_of_gradient, Processor& processor) {
  check_choosable(layout);
  return std::make_unique<GatherExchange>(comm, options, std::move(layout), fraction_of_gradient, processor);
}

}  // namespace trireme
