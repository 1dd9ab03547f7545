// Sums by packed blocks: every rank sums its part of what all have sent; where all need all, it rounds the sum, and all
// gather the sums.
#include <fmt/format.h>

#include <algorithm>

#include "trireme/compress/block_sum.h"
#include "trireme/compress/exchange_families.h"
#include "trireme/compress/message_encoders.h"

namespace trireme {
namespace {

class BlockExchange : public Exchange {
 public:
  BlockExchange(Communicator& comm, const CompressionOptions& options, GroupLayout layout)
      : layout_(std::move(layout)),
        options_(options),
        rank_(comm.rank()),
        blocks_(comm, *block_format(options), layout_.count, keeps_residual(options)) {}

  void sum(std::span<float> values, uint64_t step) override {
    clip_to_deviations(options_, layout_, values);
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
  BlockSum blocks_;
};

/// The first half of it, for ranks that need their own share only: half the bytes, and the sum is not rounded.
class ShareExchange : public Exchange {
 public:
  ShareExchange(Communicator& comm, const CompressionOptions& options, GroupLayout layout)
      : layout_(std::move(layout)),
        options_(options),
        comm_(comm),
        blocks_(comm, *block_format(options), layout_.shares),
        sum_(blocks_.own_count()),
        residual_(layout_.count, "residual/", keeps_residual(options)) {}

  void sum(std::span<float> values, uint64_t step) override {
    clip_to_deviations(options_, layout_, values);
    const RandomKey random = rounding_key(options_, layout_.name, comm_.rank(), step);
    const std::span<float> from = residual_.with(values);
    residual_.kept() ? blocks_.reduce_scatter_keeping_rest(from, sum_, random)
                     : blocks_.reduce_scatter(from, sum_, random);
    std::copy(sum_.begin(), sum_.end(), values.begin() + static_cast<std::ptrdiff_t>(blocks_.own_first()));
  }
  void save(StatePieces& pieces) const override { residual_.save(layout_, pieces); }
  void load(std::span<const StatePieces> by_rank) override {
    residual_.load(layout_, by_rank, comm_.rank(), comm_.size());
    if (!residual_.kept()) return;
    // What owners of parts have kept of sums, where all needed all: here it is one rank's own.
    load_group(layout_, "sum_residual/", by_rank, comm_.rank(), comm_.size(), sum_, blocks_.own_first());
    add_into(residual_.values().subspan(blocks_.own_first(), sum_.size()), sum_);
  }
  void rescale(float factor) override { residual_.rescale(factor); }
  uint64_t bytes_sent() const override { return blocks_.bytes_sent(); }

 private:
  GroupLayout layout_;
  CompressionOptions options_;
  Communicator& comm_;
  BlockCollectives blocks_;
  std::vector<float> sum_;
  Residual residual_;
};

}  // namespace

std::unique_ptr<Exchange> make_block_exchange(Communicator& comm, const CompressionOptions& options,
                                              GroupLayout layout) {
  if (!layout.shares.empty()) return std::make_unique<ShareExchange>(comm, options, std::move(layout));
  return std::make_unique<BlockExchange>(comm, options, std::move(layout));
}

}  // namespace trireme
