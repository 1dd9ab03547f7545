// The choice of a family, and the sum that is not compressed.
#include "trireme/compress/exchange.h"

#include "trireme/compress/exchange_families.h"

namespace trireme {
namespace {

class DenseExchange : public Exchange {
 public:
  DenseExchange(Communicator& comm, Processor& processor) : comm_(comm), processor_(processor) {}

  void sum(std::span<float> values, uint64_t) override {
    comm_.all_reduce(processor_.data_of(values), ReduceOp::kSum, processor_.call_options());
    bytes_sent_ += dense_sum_bytes(values.size_bytes(), comm_.size());
  }
  uint64_t bytes_sent() const override { return bytes_sent_; }

 private:
  Communicator& comm_;
  Processor& processor_;
  uint64_t bytes_sent_ = 0;
};

/// Dense for the first steps, then something else.
class WarmExchange : public Exchange {
 public:
  WarmExchange(Communicator& comm, Processor& processor, std::unique_ptr<Exchange> later, uint64_t steps)
      : dense_(comm, processor), later_(std::move(later)), steps_(steps) {}

  void sum(std::span<float> values, uint64_t step) override {
    step < steps_ ? dense_.sum(values, step) : later_->sum(values, step);
  }
  void save(StatePieces& pieces) const override { later_->save(pieces); }
  void load(std::span<const StatePieces> by_rank) override { later_->load(by_rank); }
  void rescale(float factor) override { later_->rescale(factor); }
  uint64_t bytes_sent() const override { return dense_.bytes_sent() + later_->bytes_sent(); }

 private:
  DenseExchange dense_;
  std::unique_ptr<Exchange> later_;
  uint64_t steps_;
};

std::unique_ptr<Exchange> make_without_warmup(Communicator& comm, const CompressionOptions& options, GroupLayout layout,
                                              double fraction_of_gradient, Processor& processor) {
  switch (family_of(options.method)) {
    case Family::kDense:
      break;
    case Family::kSparse:
      return make_gather_exchange(comm, options, std::move(layout), fraction_of_gradient, processor);
    case Family::kLowRank:
      return make_low_rank_exchange(comm, options, std::move(layout), processor);
    case Family::kBlocks:
      return make_block_exchange(comm, options, std::move(layout), processor);
  }
  return std::make_unique<DenseExchange>(comm, processor);
}

}  // namespace

uint64_t dense_sum_bytes(uint64_t num_bytes, int num_ranks) {
  const auto p = static_cast<uint64_t>(num_ranks);
  return 2 * num_bytes * (p - 1) / p;
}

std::unique_ptr<Exchange> make_exchange(Communicator& comm, const CompressionOptions& options, GroupLayout layout,
                                        double fraction_of_gradient, Processor& processor) {
  check(options);
  layout = checked(std::move(layout));
  std::unique_ptr<Exchange> exchange =
      make_without_warmup(comm, options, std::move(layout), fraction_of_gradient, processor);
  if (options.warmup_steps == 0 || options.method == Method::kDgc) return exchange;
  return std::make_unique<WarmExchange>(comm, processor, std::move(exchange), options.warmup_steps);
}

}  // namespace trireme
