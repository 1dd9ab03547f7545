// Collectives among the ranks of one host: they read each other's memory at a board instead of sending messages.
//
// [Note: Staging]
// Memory from the communicator is read by the peers where it is. Other memory cannot be reached by them, so it is
// copied, a chunk at a time, to a stage that can: a piece of a ring of memory. A stage is written, shown at a meeting,
// and read; the next chunk goes to the next stage. Whoever has arrived at the meeting after has read the first one: it
// is free again. Stages are written with streaming stores: a core that writes lines which another one has read waits
// some 10 to 25 ns for each of them, but 1 to 2 ns when the line goes straight to memory, and readers see no difference.
#pragma once

#include <span>
#include <utility>

#include "trireme/comm/board.h"
#include "trireme/comm/reduce.h"

namespace trireme {

/// Sizes that decide between ways of doing the same; measured, not derived.
struct BoardTuning {
  size_t flat_bytes = 16 * 1024;              ///< up to here every rank sums everything: one meeting instead of two
  size_t chunk_bytes = 256 * 1024;            ///< of staging; at most a quarter of the ring
  size_t ring_bytes = 1024 * 1024;            ///< memory for stages, of each rank
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
  /// The ring of stages, which the caller releases once no peer reads it any more; null if there is none.
  void* give_up_ring() { return std::exchange(ring_, nullptr); }

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
  // Another stage than the last one, with room for this many bytes; then the meeting at which it is shown.
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
  std::byte* ring_ = nullptr;
  size_t ring_at_ = 0;              // where the next stage may begin
  std::byte* stage_ = nullptr;      // the last one, if it is in the ring
  int small_stage_ = 0;             // the last one, if it is on the board
};

}  // namespace trireme
