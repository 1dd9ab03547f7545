// A board in shared memory on which the ranks of one host meet: the core of every collective there.
//
// [Note: Board]
// Each member has a seat with two posts, used in turn. To meet, a member writes its post (what it is about to do, and
// where its data is) and then the post's tick; it goes on when it has seen the same tick at every seat. That is a
// barrier, and in the same cache line it brings everybody's fingerprint and addresses: disagreement is noticed at the
// price of one comparison.
//
//   seat 0  | tick 6, fingerprint, place … | tick 7, … | sleepers |
//   seat 1  | tick 6, …                    | tick 5, … | sleepers |     member 1 has not yet arrived at tick 7
//
// Behind the seats each member has two small stages, so that short data needs no other memory.
//
// A post may be read until the reader's own next meeting: nobody can be two meetings ahead.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "trireme/comm/address_space.h"
#include "trireme/comm/operation.h"
#include "trireme/comm/waiter.h"

namespace trireme {

/// Thrown when a peer is taking part in another operation.
struct OperationMismatch {
  int peer;  ///< group rank
  OperationDigest theirs;
};

class Board {
 public:
  struct alignas(64) Post {
    std::atomic<uint32_t> tick;
    uint32_t flags;
    uint64_t fingerprint;
    uint64_t place;   ///< of what peers may read
    uint64_t detail;  ///< what else an operation has to say
    OperationDigest digest;
  };
  static_assert(sizeof(Post) == 64);

  struct alignas(64) Seat {
    Post posts[2];
    std::atomic<uint32_t> sleepers;
  };

  /// The size of one small stage: all stages together stay within 4 MiB.
  static size_t stage_bytes(int members) {
    const size_t most = (size_t{4} << 20) / 2 / static_cast<size_t>(members) / 64 * 64;
    return std::max<size_t>(std::min<size_t>(most, 16 * 1024), 64);
  }
  static size_t num_bytes(int members) {
    return (sizeof(Seat) + 2 * stage_bytes(members)) * static_cast<size_t>(members);
  }

  /// `seats` is zeroed shared memory for all members. `world_ranks` are theirs.
  Board(std::byte* seats, int group_rank, std::vector<int> world_ranks, AddressSpace& space)
      : seats_(reinterpret_cast<Seat*>(seats)),
        rank_(group_rank),
        size_(static_cast<int>(world_ranks.size())),
        world_ranks_(std::move(world_ranks)),
        space_(&space) {}

  int rank() const { return rank_; }
  int size() const { return size_; }

  int world_rank(int member) const { return world_ranks_[static_cast<size_t>(member)]; }

  struct Mine {
    uint64_t fingerprint;
    OperationDigest digest;
    uint64_t place = 0, detail = 0;
    uint32_t flags = 0;
  };

  /// Returns when every member has arrived. Throws OperationMismatch, WaitTimedOut or JobFailed.
  void meet(const Mine& mine, const Waiter& waiter);

  /// What a member posted at the last meeting.
  const Post& post(int member) const { return seats_[member].posts[tick_ & 1]; }
  /// The memory that it showed by its place.
  std::byte* place_at(int member) const {
    return space_->at(world_ranks_[static_cast<size_t>(member)], post(member).place);
  }

  /// The small stages of a member.
  std::byte* stage(int member, int which) const {
    const size_t bytes = stage_bytes(size_);
    return reinterpret_cast<std::byte*>(seats_ + size_) +
           (2 * static_cast<size_t>(member) + static_cast<size_t>(which)) * bytes;
  }

  /// The members that have not arrived at the meeting under way: for the message at a timeout.
  std::vector<int> missing() const;

 private:
  Seat* seats_;
  int rank_, size_;
  std::vector<int> world_ranks_;
  AddressSpace* space_;
  uint32_t tick_ = 0;
};

}  // namespace trireme
