// Gathers a group of sharded weights in a packed format: each rank packs its part, and all ranks unpack the same bytes,
// including their own. So every rank computes with the same values, while the weights that are updated stay exact.
//
// Owner: ParameterStore, one per group. Threads: one. Blocking: none; the caller waits on the handle. On a GPU the
// processor works on the current stream.
#pragma once

#include <torch/torch.h>

#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/compress/formats/block_format.h"
#include "trireme/compress/processor.h"

namespace trireme {

class PackedGather {
 public:
  /// counts[r]: number of elements of rank r's part; parts follow one another, in the processor's memory. `comm` and
  /// `processor` must outlive it.
  PackedGather(Communicator& comm, Processor& processor, const torch::Device& device, BlockFormat format,
               std::vector<size_t> counts);

  /// Packed size of the whole group.
  int64_t packed_bytes() const { return packed_bytes_; }
  /// Call when this rank's part has changed.
  void mark_stale() { is_packed_ = false; }
  /// Packs this rank's part if it is stale, and starts to gather all parts into `packed`.
  Handle start(const torch::Tensor& own, const torch::Tensor& packed);
  /// Unpacks a gathered `packed` into `whole`.
  void unpack(const torch::Tensor& packed, const torch::Tensor& whole) const;
  /// Bytes that this rank sends in one gather.
  size_t bytes_sent() const { return wire_counts_[rank_] * (counts_.size() - 1); }

 private:
  Communicator& comm_;
  Processor& processor_;
  const torch::Device device_;
  const BlockFormat format_;
  const size_t rank_;
  const std::vector<size_t> counts_;
  std::vector<size_t> wire_counts_;
  int64_t packed_bytes_ = 0;
  torch::Tensor own_;  ///< this rank's part, packed
  bool is_packed_ = false;
};

}  // namespace trireme
