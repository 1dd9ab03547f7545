#include "trireme/comm/board.h"

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

std::vector<int> Board::missing() const {
  std::vector<int> members;
  for (int member = 0; member < size_; ++member) {
    if (!arrived(seats_[member].posts[tick_ & 1].tick.load(std::memory_order_acquire), tick_))
      members.push_back(member);
  }
  return members;
}

}  // namespace trireme
