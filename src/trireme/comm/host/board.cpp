#include "trireme/comm/host/board.h"

namespace trireme {
namespace {

bool arrived(uint32_t seen, uint32_t tick) { return static_cast<int32_t>(seen - tick) >= 0; }

}  // namespace

void Board::meet(const Mine& mine, const Waiter& waiter) {
  const uint32_t tick = ++tick_;
  Seat& seat = seats_[rank_];
  Post& own = seat.posts[tick & 1];
  own.flags = mine.flags;
  own.fingerprint = mine.fingerprint;
  own.place = mine.place;
  own.detail = mine.detail;
  own.digest = mine.digest;
  own.tick.store(tick, std::memory_order_seq_cst);
  wake_sleepers(own.tick, seat.sleepers);

  for (int step = 1; step < size_; ++step) {
    const int peer = rank_ + step < size_ ? rank_ + step : rank_ + step - size_;
    Post& post = seats_[peer].posts[tick & 1];
    waiter.until(post.tick, seats_[peer].sleepers,
                 [&] { return arrived(post.tick.load(std::memory_order_acquire), tick); });
    if (post.fingerprint != mine.fingerprint) [[unlikely]]
      throw OperationMismatch{peer, post.digest};
  }
}

void Board::look() const {
  const Announcement& mine = seats_[rank_].announcement;
  const uint64_t sequence = mine.sequence.load(std::memory_order_relaxed);
  const uint64_t fingerprint = mine.fingerprint.load(std::memory_order_relaxed);
  for (int member = 0; member < size_; ++member) {
    const Announcement& theirs = seats_[member].announcement;
    if (theirs.sequence.load(std::memory_order_acquire) != sequence) continue;
    const uint64_t their_fingerprint = theirs.fingerprint.load(std::memory_order_relaxed);
    std::array<uint64_t, sizeof(OperationDigest) / sizeof(uint64_t)> words;
    for (size_t i = 0; i < words.size(); ++i) words[i] = theirs.digest[i].load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (theirs.sequence.load(std::memory_order_relaxed) != sequence || their_fingerprint == fingerprint) continue;
    throw OperationMismatch{member, std::bit_cast<OperationDigest>(words)};
  }
}

Board::Votes Board::votes(int other) const {
  const uint64_t sequence = seats_[rank_].announcement.sequence.load(std::memory_order_relaxed);
  const uint64_t mine = seats_[rank_].announcement.fingerprint.load(std::memory_order_relaxed);
  const uint64_t theirs = seats_[other].announcement.fingerprint.load(std::memory_order_relaxed);
  Votes votes;
  if (seats_[other].announcement.sequence.load(std::memory_order_acquire) != sequence) return votes;  // it has gone on
  for (int member = 0; member < size_; ++member) {
    const Announcement& announced = seats_[member].announcement;
    const uint64_t fingerprint = announced.fingerprint.load(std::memory_order_relaxed);
    if (announced.sequence.load(std::memory_order_acquire) != sequence) {
      ++votes.late;
    } else {
      votes.with_me += fingerprint == mine;
      votes.with_other += fingerprint == theirs;
    }
  }
  return votes;
}

std::vector<int> Board::behind() const {
  std::vector<int> members;
  const uint64_t sequence = seats_[rank_].announcement.sequence.load(std::memory_order_relaxed);
  for (int member = 0; member < size_; ++member) {
    if (seats_[member].announcement.sequence.load(std::memory_order_acquire) < sequence) members.push_back(member);
  }
  return members;
}

std::vector<int> Board::missing() const {
  std::vector<int> members;
  for (int member = 0; member < size_; ++member) {
    if (!arrived(seats_[member].posts[tick_ & 1].tick.load(std::memory_order_acquire), tick_))
      members.push_back(member);
  }
  return members;
}

}  // namespace trireme
