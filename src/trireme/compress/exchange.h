// Sums one group of gradients over all ranks, compressed: one class a family of methods behind one interface.
//
// Owner: CompressedReducer, one for each group. sum() is collective; threads: one at a time. Blocking and failure: as
// the communicator. All ranks get the same bits.
//
// [Note: Not finite]
// A NaN or an infinity in a gradient reaches all ranks: the sum there is not finite in at least one element, and for
// the packed formats in the whole block. It leaves nothing behind: residuals stay finite, at the price that what a
// residual held in such an element (a block of packed formats; the tensor for powersgd) is lost.
#pragma once

#include <memory>
#include <span>

#include "trireme/comm/communicator.h"
#include "trireme/compress/group_layout.h"
#include "trireme/compress/method.h"
#include "trireme/compress/processor.h"
#include "trireme/compress/state.h"

namespace trireme {

class Exchange {
 public:
  virtual ~Exchange() = default;

  /// `values` holds this rank's gradient before, and the sum of all ranks' after: at least in this rank's shard, where
  /// the layout has shards.
  virtual void sum(std::span<float> values, uint64_t step) = 0;
  /// What a resumed job needs: this rank's pieces.
  virtual void save(StatePieces&) const {}
  /// From the pieces of all ranks that saved; there may have been more or fewer of them.
  virtual void load(std::span<const StatePieces>) {}
  /// Multiplies what is kept of past gradients: when a loss scale changes.
  virtual void rescale(float) {}
  /// Bytes that this rank has sent to others so far. Sums of dense arrays count as 2 (p − 1) / p of their size, what
  /// the algorithms of large arrays send.
  virtual uint64_t bytes_sent() const = 0;
};

/// `fraction_of_gradient`: how much of the whole gradient's elements this group has, and so of the norm that dgc
/// allows. `values` of sums, and what is kept, lie in the processor's memory.
std::unique_ptr<Exchange> make_exchange(Communicator& comm, const CompressionOptions& options, GroupLayout layout,
                                        double fraction_of_gradient = 1, Processor& processor = host_processor());

/// What a dense sum of so many bytes makes a rank send.
uint64_t dense_sum_bytes(uint64_t num_bytes, int num_ranks);

}  // namespace trireme
