// Collectives among the ranks of one host: they read each other's memory at a board instead of sending messages.
//
// [Note: Staging]
// Memory from the communicator is read by the peers where it is. Other memory cannot be reached by them, so it is
// copied, a chunk at a time, into one of two stages that can. A stage is written, shown at a meeting, and read; the
// next chunk goes to the other stage. Whoever has arrived at the meeting after has read the first one: it is free again.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "trireme/comm/board.h"
#include "trireme/comm/reduce.h"

namespace trireme {

/// Sizes that decide between ways of doing the same; measured, not derived.
struct BoardTuning {
  size_t flat_bytes = 16 * 1024;              ///< up to here every rank sums everything: one meeting instead of two
  size_t chunk_bytes = 512 * 1024;            ///< of staging
  size_t streaming_bytes = 24 * 1024 * 1024;  ///< from here on (all ranks together), stores bypass the caches
};

/// Used by one thread at a time.
class BoardCollectives {
 public:
  struct Call {
    uint64_t fingerprint;
    const OperationDigest& digest;
    const Waiter& waiter;
  };

  BoardCollectives(Board& board, AddressSpace& space, const BoardTuning& tuning);
  /// The stages, which the caller releases once no peer reads them any more.
  std::vector<void*> give_up_stages();

  void barrier(const Call& call);
  void broadcast(const Call& call, Data data, int root);
  void scatter(const Call& call, ConstData in, Data out, int root);
  void gather(const Call& call, ConstData in, Data out, int root);
  void all_gather(const Call& call, ConstData in, Data out, std::span<const size_t> counts);
  void reduce(const Call& call, ConstData in, Data out, ReduceOp op, int root);
  void reduce_scatter(const Call& call, ConstData in, Data out, ReduceOp op);
  void all_reduce(const Call& call, Data data, ReduceOp op);
  void all_to_all(const Call& call, ConstData in, std::span<const size_t> send_counts, Data out,
                  std::span<const size_t> recv_counts);

 private:
  // What this rank shows at a meeting.
  void meet(const Call& call, uint64_t place, uint32_t flags = 0, uint64_t detail = 0);
  // The other of the two stages, with room for this many bytes; then the meeting at which it is shown.
  std::byte* next_stage(size_t num_bytes);
  void meet_with_stage(const Call& call, uint64_t detail = 0);
  // What a member showed at the last meeting.
  std::byte* shown(int member) const;
  // The place of memory that peers can read directly and that is worth a closing meeting.
  std::optional<uint64_t> direct_place(ConstData data) const;
  bool any_direct() const;
  bool all_direct() const;
  Stores stores_for(size_t num_bytes) const;
  size_t chunk_elements(DataType type, int blocks = 1) const;

  // Shows `blocks` blocks of `block` elements each; `read(member, block index, place, first, count)` takes one piece
  // of what a member showed. The core of scatter, all-gather, all-to-all and reduce-scatter.
  template <typename Read>
  void show_blocks(const Call& call, ConstData in, size_t block, int blocks, bool shows, Read read);

  Board* board_;
  AddressSpace* space_;
  BoardTuning tuning_;
  std::array<std::byte*, 2> stages_{};
  std::array<size_t, 2> stage_bytes_{};
  int stage_ = 0;
  bool stage_is_small_ = true;
};

}  // namespace trireme
