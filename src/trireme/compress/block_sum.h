// A sum over ranks in a packed format that keeps what it rounds away: of a rank's own values, and of the sum of its
// part.
//
// Owner: one for each array, since it remembers. Must not outlive the communicator and the processor. sum() is
// collective; threads: one at a time. Blocking and failure: as the communicator.
#pragma once

#include "trireme/compress/block_collectives.h"
#include "trireme/compress/residual.h"

namespace trireme {

class BlockSum {
 public:
  /// What is kept is saved under `prefix`; without `keeps_rest`, what is rounded away is lost.
  BlockSum(Communicator& comm, BlockFormat format, size_t count, bool keeps_rest, std::string prefix = {},
           Processor& processor = host_processor())
      : comm_(comm),
        processor_(processor),
        blocks_(comm, format, block_parts(count, comm.size()), processor),
        sum_(processor, blocks_.own_count()),
        residual_(count, prefix + "residual/", keeps_rest, processor),
        sum_residual_(blocks_.own_count(), prefix + "sum_residual/", keeps_rest, processor) {}

  /// `values` become their sum over ranks times `factor`. `own` are the random numbers of this rank's values, `of_sum`
  /// those of the sum.
  void sum(std::span<float> values, const RandomKey& own, const RandomKey& of_sum, float factor = 1) {
    const std::span<float> from = residual_.with(values), sum = sum_.span();
    residual_.kept() ? blocks_.reduce_scatter_keeping_rest(from, sum, own) : blocks_.reduce_scatter(from, sum, own);
    if (factor != 1) processor_.scale_by(sum, factor);
    const std::span<float> sent = sum_residual_.with(sum);
    residual_.kept() ? blocks_.all_gather_keeping_rest(sent, values, of_sum) : blocks_.all_gather(sent, values, of_sum);
  }

  void save(const GroupLayout& layout, StatePieces& pieces) const {
    residual_.save(layout, pieces);
    sum_residual_.save(layout, pieces, StateKind::kSharded, blocks_.own_first());
  }
  void load(const GroupLayout& layout, std::span<const StatePieces> by_rank) {
    residual_.load(layout, by_rank, comm_.rank(), comm_.size());
    sum_residual_.load(layout, by_rank, comm_.rank(), comm_.size(), blocks_.own_first());
  }
  void rescale(float factor) {
    residual_.rescale(factor);
    sum_residual_.rescale(factor);
  }
  uint64_t bytes_sent() const { return blocks_.bytes_sent(); }

 private:
  Communicator& comm_;
  Processor& processor_;
  BlockCollectives blocks_;
  Array<float> sum_;
  Residual residual_, sum_residual_;
};

}  // namespace trireme
