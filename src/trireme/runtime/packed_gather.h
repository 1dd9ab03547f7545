// Gathers a group of sharded weights in a packed format: each rank packs its part, and all unpack the same bytes, their
// own among them. So every rank computes with the same values, while the weights that are updated stay exact.
//
// Owner: the parameter store, one a group. Threads: one. Blocking: none; the handle waits. On a GPU the processor works
// on the current stream.
#pragma once

#include <torch/torch.h>

#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/compress/formats/block_format.h"
#include "trireme/compress/processor.h"

namespace trireme {

class PackedGather {
 public:
  /// counts[r] elements lie at rank r, one part after another, where the processor works. `comm` and `processor` must
  /// outlive it.
  PackedGather(Communicator& comm, Processor& processor, const torch::Device& device, BlockFormat format,
               std::vector<size_t> counts);

  /// Of the whole group.
  int64_t packed_bytes() const { return packed_bytes_; }
  /// This rank's part has changed.
  void mark_stale() { is_packed_ = false; }
  /// Packs this rank's part, unless that was done, and begins to gather all into `packed`.
  Handle start(const torch::Tensor& own, const torch::Tensor& packed);
  /// When that is there.
  void unpack(const torch::Tensor& packed, const torch::Tensor& whole) const;
  /// That this rank hands to the others in a gather.
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
  torch::Tensor own_;  ///< packed
  bool is_packed_ = false;
};

}  // namespace trireme
