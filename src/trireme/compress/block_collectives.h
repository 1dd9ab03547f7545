// Collectives whose data travel in a packed format: what ZeRO's gathers of parameters and sums of gradients use.
//
// Every rank gets the same bits. An element is rounded once in a gather and once in a sum. Sums are float32, in the
// order of the ranks. Stochastic formats take a random key; in a sum every rank should have its own.
// Owner: whoever calls again and again, since it keeps its buffers; must not outlive the communicator and the
// processor, in whose memory arrays lie. All functions are collective. Threads: one at a time. Blocking and failure: as
// the communicator.
#pragma once

#include <span>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/compress/processor.h"

namespace trireme {

class BlockCollectives {
 public:
  /// An array that ranks hold parts of: counts[r] elements lie at rank r, one part after another. Any sizes, 0
  /// included.
  BlockCollectives(Communicator& comm, BlockFormat format, std::vector<size_t> counts,
                   Processor& processor = host_processor());

  size_t count() const { return count_; }
  size_t own_count() const { return counts_[rank_]; }
  /// Where this rank's part begins.
  size_t own_first() const { return firsts_[rank_]; }

  /// `out` becomes the whole array, from the parts. A rank's own part comes back rounded, as the others see it.
  void all_gather(std::span<const float> part, std::span<float> out, const RandomKey& random = {});
  /// `out` becomes the sum over ranks of this rank's part of `whole`.
  void reduce_scatter(std::span<const float> whole, std::span<float> out, const RandomKey& random = {});

  // The same, and what was rounded away is left where the values were: 0 where it is not finite.
  void all_gather_keeping_rest(std::span<float> part, std::span<float> out, const RandomKey& random = {});
  void reduce_scatter_keeping_rest(std::span<float> whole, std::span<float> out, const RandomKey& random = {});

  /// Bytes that this rank has sent to others so far.
  uint64_t bytes_sent() const { return bytes_sent_; }

 private:
  std::span<uint8_t> wire_of(size_t rank) { return gathered_.span().subspan(wire_firsts_[rank], wire_counts_[rank]); }
  std::span<uint8_t> own_wire() { return own_.span().first(wire_counts_[rank_]); }
  uint64_t random_first(size_t rank) const { return block_firsts_[rank] * kBlockElements; }
  void gather_wire(std::span<float> out);
  void scatter_wire(std::span<float> out);

  Communicator& comm_;
  Processor& processor_;
  BlockFormat format_;
  size_t rank_, count_ = 0;
  std::vector<size_t> counts_, firsts_, wire_counts_, wire_firsts_, block_firsts_;
  Array<uint8_t> gathered_;  ///< the whole array, packed
  Array<uint8_t> own_;       ///< this rank's part, packed, once for each rank
  uint64_t bytes_sent_ = 0;
};

}  // namespace trireme
