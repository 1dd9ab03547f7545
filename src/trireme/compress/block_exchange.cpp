// Sums by packed blocks: every rank sums its part of what all have sent, rounds the sum, and all gather the sums.
#include <fmt/format.h>

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

}  // namespace

std::unique_ptr<Exchange> make_block_exchange(Communicator& comm, const CompressionOptions& options,
                                              GroupLayout layout) {
  return std::make_unique<BlockExchange>(comm, options, std::move(layout));
}

}  // namespace trireme
