// Collectives among the ranks of one host: they read each other's memory at a board instead of sending messages.
//
// [Note: Showing]
// At a meeting each rank shows its operand in one of two ways.
//   direct   memory from the communicator: peers read it, and write to it, where it is. The owner may change it again
//            after a closing meeting;
//   staged   other memory is copied, a chunk at a time, to a stage: a piece of a ring of shared memory. The next chunk
//            goes to the next stage. Whoever has arrived at the meeting after has read the first one: it is free again.
// Very short operands are always staged: a copy costs less than a closing meeting.
//
// [Note: Stores to stages]
// A core that writes lines which another one has read into its cache waits for each of them: 3 to 8 ns where the two
// cores share a cache, 20 to 30 ns where they do not. Lines that go straight to memory cost 2 ns, but are then read
// some 5 ns later. The first is better on near cores, the second on far ones, and a virtual machine does not say which
// it has. So the ring is larger than a core's own cache (lines have left it when their turn comes again), and each rank
// times its stores and takes what is faster.
#pragma once

#include <optional>
#include <span>
#include <utility>

#include "trireme/comm/host/board.h"
#include "trireme/comm/reduce/reduce.h"

namespace trireme {

/// Sizes that decide between ways of doing the same; measured, not derived.
struct BoardTuning {
  size_t in_place_bytes = 1024;               ///< beyond, memory in reach is all-reduced in place
  size_t flat_bytes = 16 * 1024;              ///< up to here an all-reduce is one meeting: every rank sums everything
  size_t chunk_bytes = 256 * 1024;            ///< of a stage; at most a quarter of the ring
  size_t ring_bytes = 2 * 1024 * 1024;        ///< for stages, of each rank
  size_t streaming_bytes = 48 * 1024 * 1024;  ///< from here on (all ranks together), results bypass the caches
};

/// Copies to stages in the way that is faster on these cores: see [Note: Stores to stages].
class StageWriter {
 public:
  explicit StageWriter(double slow_line_ns) : slow_line_ns_(slow_line_ns) {}
  void copy(std::byte* stage, ConstData in);

 private:
  double slow_line_ns_;  // from this time for a line on, streaming is faster
  int unwatched_ = 0;    // copies until the next that is timed
  bool streaming_ = false;
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
  void all_gather(const Call& call, ConstData in, Data out);
  void all_gather_v(const Call& call, ConstData in, Data out, std::span<const size_t> counts);
  void reduce(const Call& call, ConstData in, Data out, ReduceOp op, int root);
  void reduce_scatter(const Call& call, ConstData in, Data out, ReduceOp op);
  void reduce_scatter_v(const Call& call, ConstData in, Data out, std::span<const size_t> counts, ReduceOp op);
  void all_reduce(const Call& call, Data data, ReduceOp op);
  void all_to_all(const Call& call, ConstData in, Data out);
  void all_to_all_v(const Call& call, ConstData in, std::span<const size_t> send_counts, Data out,
                    std::span<const size_t> recv_counts);

 private:
  void meet(const Call& call, uint64_t place, uint32_t flags = 0, uint64_t detail = 0);
  std::byte* next_stage(size_t num_bytes);
  void copy_to_stage(std::byte* stage, ConstData in);
  void meet_with_stage(const Call& call, uint64_t detail = 0);

  /// The place of an operand that is worth showing directly.
  std::optional<uint64_t> direct_place(ConstData data) const;
  bool shows_directly(int member) const;
  bool all_show_directly() const;
  bool any_shows_directly() const;
  /// What a member showed.
  const std::byte* shown(int member) const;
  /// Copies what a member showed, from a position in it.
  void take(int member, size_t at_bytes, Data out, Stores stores = Stores::kCached);
  /// out = the reduction of all members' data at their positions; this rank's own is at `own`.
  template <typename Position>
  void take_reduced(const void* own, Position at_bytes, Data out, ReduceOp op, Stores stores = Stores::kCached);

  Stores stores_for(size_t num_bytes) const;
  size_t chunk_elements(DataType type, int blocks = 1) const;

  /// Shows `in`, which is `blocks` blocks of `block` elements, at as many meetings as it takes. After each,
  /// `read(position, first, count)` takes elements [first, first + count) of what it wants of the blocks;
  /// position(member, b) is where block b of a member is.
  template <typename Read>
  void show_blocks(const Call& call, ConstData in, size_t block, int blocks, bool is_shown, Read read);

  void all_reduce_flat(const Call& call, Data data, ReduceOp op);
  void all_reduce_in_place(const Call& call, Data data, ReduceOp op);
  void all_reduce_staged(const Call& call, Data data, ReduceOp op);

  Board* board_;
  AddressSpace* space_;
  BoardTuning tuning_;
  std::byte* ring_ = nullptr;
  size_t ring_at_ = 0;          // where the next stage may begin
  std::byte* stage_ = nullptr;  // the last one, if it is in the ring
  int small_stage_ = 0;         // the last one, if it is on the board
  StageWriter short_writer_{5}, long_writer_{9};
};

}  // namespace trireme
