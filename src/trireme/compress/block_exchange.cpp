// Sums by packed blocks: every rank sums its part of what all have sent; where all need all, it rounds the sum, and all
// gather the sums.
#include <fmt/format.h>

#include "trireme/compress/block_sum.h"
#include "trireme/compress/exchange_families.h"
#include "trireme/compress/message_encoders.h"

namespace trireme {
namespace {

class BlockExchange : public Exchange {
 public:
  BlockExchange(Communicator& comm, const CompressionOptions& options, GroupLayout layout, Processor& processor)
      : layout_(std::move(layout)),
        options_(options),
        rank_(comm.rank()),
        processor_(processor),
        blocks_(comm, *block_format(options), layout_.count, keeps_residual(options), {}, processor) {}

  void sum(std::span<float> values, uint64_t step) override {
    clip_to_deviations(options_, layout_, values, processor_);
    const RandomKey of_sum = random_key(options_.seed, fmt::format("compress/{}/sum", layout_.name), step);
    blocks_.sum(values, rounding_key(options_, layout_.name, rank_, step), of_sum);
  }
  void save(StatePieces& pieces) const override { blocks_.save(layout_, pieces); }
  void load(std::span<const StatePieces> by_rank) override { blocks_.load(layout_, by_rank); }
  void rescale(float factor) override { blocks_.rescale(factor); }
  uint64_t bytes_sent() const override { return blocks_.bytes_sent(); }

 private:
  GroupLayout layout_;
  CompressionOptions options_;
  int rank_;
  Processor& processor_;
  BlockSum blocks_;
};

/// The first half of it, for ranks that need their own shard only: half the bytes, and the sum is not rounded.
class ShardExchange : public Exchange {
 public:
  ShardExchange(Communicator& comm, const CompressionOptions& options, GroupLayout layout, Processor& processor)
      : layout_(std::move(layout)),
        options_(options),
        comm_(comm),
        processor_(processor),
        blocks_(comm, *block_format(options), layout_.shards, processor),
        sum_(processor, blocks_.own_count()),
        residual_(layout_.count, "residual/", keeps_residual(options), processor) {}

  void sum(std::span<float> values, uint64_t step) override {
    clip_to_deviations(options_, layout_, values, processor_);
    const RandomKey random = rounding_key(options_, layout_.name, comm_.rank(), step);
    const std::span<float> from = residual_.with(values);
    residual_.kept() ? blocks_.reduce_scatter_keeping_rest(from, sum_.span(), random)
                     : blocks_.reduce_scatter(from, sum_.span(), random);
    processor_.copy(sum_.span(), values.subspan(blocks_.own_first(), sum_.size()));
  }
  void save(StatePieces& pieces) const override { residual_.save(layout_, pieces); }
  void load(std::span<const StatePieces> by_rank) override {
    residual_.load(layout_, by_rank, comm_.rank(), comm_.size());
    if (!residual_.kept()) return;
    // What owners of parts have kept of sums, where all needed all: here it is one rank's own.
    Residual of_sums(sum_.size(), "sum_residual/", true, processor_);
    of_sums.load(layout_, by_rank, comm_.rank(), comm_.size(), blocks_.own_first());
    processor_.add_into(residual_.values().subspan(blocks_.own_first(), sum_.size()), of_sums.values());
  }
  void rescale(float factor) override { residual_.rescale(factor); }
  uint64_t bytes_sent() const override { return blocks_.bytes_sent(); }

 private:
  GroupLayout layout_;
  CompressionOptions options_;
  Communicator& comm_;
  Processor& processor_;
  BlockCollectives blocks_;
  Array<float> sum_;
  Residual residual_;
};

}  // namespace

std::unique_ptr<Exchange> make_block_exchange(Communicator& comm, const CompressionOptions& options, GroupLayout layout,
                                              Processor& processor) {
  if (!layout.shards.empty()) return std::make_unique<ShardExchange>(comm, options, std::move(layout), processor);
  return std::make_unique<BlockExchange>(comm, options, std::move(layout), processor);
}

}  // namespace trireme
