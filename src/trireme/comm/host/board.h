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
// An operation that works by messages never meets. So each member also announces every operation at its seat; whoever
// has to wait for long looks there whether the others mean the same one.
//
// A post may be read until the reader's own next meeting: nobody can be two meetings ahead.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "trireme/comm/host/address_space.h"
#include "trireme/comm/host/waiter.h"
#include "trireme/comm/record/operation.h"

namespace trireme {

/// Thrown when a peer is taking part in another operation.
struct OperationMismatch {
  int peer;  ///< group rank
  OperationDigest theirs;
  OperationDigest mine = {};  ///< kNone: that of the caller
};

class Board final : public Lookout {
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

  /// Read while it may be changing: what was read counts when `sequence` is the same before and after.
  struct alignas(64) Announcement {
    std::atomic<uint64_t> sequence;
    std::atomic<uint64_t> fingerprint;
    std::atomic<uint64_t> digest[sizeof(OperationDigest) / sizeof(uint64_t)];
  };

  struct alignas(64) Seat {
    Post posts[2];
    std::atomic<uint32_t> sleepers;
    Announcement announcement;
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

  /// Says what this member is about to do, whether it will meet the others or not.
  void announce(const OperationDigest& digest, uint64_t fingerprint) {
    Announcement& mine = seats_[rank_].announcement;
    const auto words = std::bit_cast<std::array<uint64_t, sizeof(OperationDigest) / sizeof(uint64_t)>>(digest);
    mine.sequence.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    mine.fingerprint.store(fingerprint, std::memory_order_relaxed);
    for (size_t i = 0; i < words.size(); ++i) mine.digest[i].store(words[i], std::memory_order_relaxed);
    mine.sequence.store(digest.sequence, std::memory_order_release);
  }
  /// Throws OperationMismatch when a member has announced something else under the same number.
  void look() const override;
  /// Of the members that have announced an operation under this member's number: how many mean this member's, how many
  /// that of `other`. The rest are late.
  struct Votes {
    int with_me = 0, with_other = 0, late = 0;
  };
  Votes votes(int other) const;

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

  /// The members that have not even begun the operation under way: for the message at a timeout.
  std::vector<int> behind() const;
  /// The members that have not arrived at the meeting under way.
  std::vector<int> missing() const;

 private:
  Seat* seats_;
  int rank_, size_;
  std::vector<int> world_ranks_;
  AddressSpace* space_;
  uint32_t tick_ = 0;
};

}  // namespace trireme
