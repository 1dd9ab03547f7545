// Sums by packed blocks: every rank sums its part of what all have sent, rounds the sum, and all gather the sums.
//
// With error feedback, what a rank rounds away is kept twice: of its own gradient, and of the sum of its part.
#include <fmt/format.h>

#include "trireme/compress/block_collectives.h"
#include "trireme/compress/exchange.h"
#include "trireme/compress/message_encoders.h"

namespace trireme {
namespace {

class BlockExchange : public Exchange {
 public:
  BlockExchange(Communicator& comm, const CompressionOptions& options, GroupLayout layout)
      : layout_(std::move(layout)),
        options_(options),
        rank_(comm.rank()),
        size_(comm.size()),
        blocks_(comm, *block_format(options), block_parts(layout_.count, comm.size())),
        sum_(blocks_.own_count()),
        residual_(layout_.count, "residual/", keeps_residual(options)),
        sum_residual_(residual_.kept() ? blocks_.own_count() : 0) {}

  void sum(std::span<float> values, uint64_t step) override {
    if (options_.clip_deviations > 0) clip_to_deviations(layout_, options_.clip_deviations, values);
    const RandomKey first = rounding_key(options_, layout_.name, rank_, step);
    const RandomKey second = random_key(options_.seed, fmt::format("compress/{}/sum", layout_.name), step);
    const std::span<float> from = residual_.with(values);
    if (!residual_.kept()) {
      blocks_.reduce_scatter(from, sum_, first);
      blocks_.all_gather(sum_, values, second);
      return;
    }
    blocks_.reduce_scatter_keeping_rest(from, sum_, first);
    add_into(sum_residual_, sum_);
    blocks_.all_gather_keeping_rest(sum_residual_, values, second);
  }

  void save(StatePieces& pieces) const override {
    residual_.save(layout_, pieces);
    save_group(layout_, "sum_residual/", StateKind::kSharded, sum_residual_, blocks_.own_first(), pieces);
  }
  void load(std::span<const StatePieces> by_rank) override {
    residual_.load(layout_, by_rank, rank_, size_);
    load_group(layout_, "sum_residual/", by_rank, rank_, size_, sum_residual_, blocks_.own_first());
  }
  void rescale(float factor) override {
    residual_.rescale(factor);
    scale_by(sum_residual_, factor);
  }
  uint64_t bytes_sent() const override { return blocks_.bytes_sent(); }

 private:
  GroupLayout layout_;
  CompressionOptions options_;
  int rank_, size_;
  BlockCollectives blocks_;
  std::vector<float> sum_;
  Residual residual_;                ///< of this rank's gradient
  std::vector<float> sum_residual_;  ///< of the sum of this rank's part; empty without error feedback
};

}  // namespace

std::unique_ptr<Exchange> make_block_exchange(Communicator& comm, const CompressionOptions& options,
                                              GroupLayout layout) {
  return std::make_unique<BlockExchange>(comm, options, std::move(layout));
}

}  // namespace trireme
