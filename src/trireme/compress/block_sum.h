// A sum over ranks in a packed format that keeps what it rounds away: of a rank's own values, and of the sum of its
// part.
//
// Owner: one for each array, since it remembers. Must not outlive the communicator. sum() is collective; threads: one
// at a time. Blocking and failure: as the communicator.
#pragma once

#include "trireme/compress/block_collectives.h"
#include "trireme/compress/residual.h"

namespace trireme {

class BlockSum {
 public:
  /// What is kept is saved under `prefix`; without `keeps_rest`, what is rounded away is lost.
  BlockSum(Communicator& comm, BlockFormat format, size_t count, bool keeps_rest, std::string prefix = {})
      : comm_(comm),
        blocks_(comm, format, block_parts(count, comm.size())),
        prefix_(std::move(prefix)),
        sum_(blocks_.own_count()),
        residual_(count, prefix_ + "residual/", keeps_rest),
        sum_residual_(residual_.kept() ? blocks_.own_count() : 0) {}

  /// `values` become their sum over ranks times `factor`. `own` are the random numbers of this rank's values, `of_sum`
  /// those of the sum.
  void sum(std::span<float> values, const RandomKey& own, const RandomKey& of_sum, float factor = 1) {
    const std::span<float> from = residual_.with(values);
    residual_.kept() ? blocks_.reduce_scatter_keeping_rest(from, sum_, own) : blocks_.reduce_scatter(from, sum_, own);
    if (factor != 1) scale_by(sum_, factor);
    if (!residual_.kept()) return blocks_.all_gather(sum_, values, of_sum);
    add_into(sum_residual_, sum_);
    blocks_.all_gather_keeping_rest(sum_residual_, values, of_sum);
  }

  void save(const GroupLayout& layout, StatePieces& pieces) const {
    residual_.save(layout, pieces);
    save_group(layout, prefix_ + "sum_residual/", StateKind::kSharded, sum_residual_, blocks_.own_first(), pieces);
  }
  void load(const GroupLayout& layout, std::span<const StatePieces> by_rank) {
    const int rank = comm_.rank(), size = comm_.size();
    residual_.load(layout, by_rank, rank, size);
    load_group(layout, prefix_ + "sum_residual/", by_rank, rank, size, sum_residual_, blocks_.own_first());
  }
  void rescale(float factor) {
    residual_.rescale(factor);
    scale_by(sum_residual_, factor);
  }
  uint64_t bytes_sent() const { return blocks_.bytes_sent(); }

 private:
  Communicator& comm_;
  BlockCollectives blocks_;
  std::string prefix_;
  std::vector<float> sum_;
  Residual residual_;
  std::vector<float> sum_residual_;  ///< empty where nothing is kept
};

}  // namespace trireme
