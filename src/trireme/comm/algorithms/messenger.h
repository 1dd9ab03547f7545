// What a collective algorithm sees of the world: its rank, its peers, messages and scratch memory.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "trireme/comm/reduce/reduce.h"
#include "trireme/comm/transport/endpoint.h"

namespace trireme {

/// Scratch memory that is kept from one operation to the next.
class Arena {
 public:
  /// Valid until reset(). 64-byte aligned, not zeroed.
  Bytes take(size_t num_bytes);
  void reset();

 private:
  struct Block {
    std::unique_ptr<std::byte, void (*)(void*)> memory;
    size_t size;
  };
  std::vector<Block> blocks_;
  size_t next_ = 0;
};

/// One operation's view of an endpoint. Used by one thread.
class Messenger {
 public:
  using Ticket = Endpoint::Ticket;
  /// Long messages are cut into blocks of this size where a step can work on one while the next is under way. Between
  /// machines they are larger: a core that is woken seldom computes more.
  static constexpr size_t kBlockBytes = 256 * 1024;
  size_t block_bytes() const { return endpoint_->on_one_machine() ? kBlockBytes : 4 * kBlockBytes; }
  /// How many of them may be on their way to a peer: few where caches hold them, many where cables do.
  size_t blocks_on_the_way() const { return endpoint_->on_one_machine() ? 2 : 16; }

  Messenger(Endpoint& endpoint, Arena& arena, const Waiter& waiter, const FrameHeader& header)
      : endpoint_(&endpoint), arena_(&arena), waiter_(&waiter), header_(header) {
    arena_->reset();
  }

  int rank() const { return endpoint_->rank(); }
  int size() const { return endpoint_->size(); }
  Bytes scratch(size_t num_bytes) { return arena_->take(num_bytes); }

  // Each of these is one round.
  void send(int to, ConstBytes data);
  void recv(int from, Bytes data);
  void exchange(int to, ConstBytes out, int from, Bytes in);

  // Many at once: start them, then wait for the batch, which is one round. Lanes keep two streams between the same
  // ranks apart.
  Ticket start_send(int to, ConstBytes data, int lane = 0);
  Ticket start_recv(int from, Bytes data, int lane = 0);
  void wait(const Ticket& ticket) { wait(std::span(&ticket, 1)); }
  void wait(std::span<const Ticket> tickets);
  /// Waits for one; no round.
  void settle(const Ticket& ticket);
  /// Waits for all that was started and not waited for; no round.
  void finish();

  /// Sends `out` to one rank while what arrives from another is combined into `in`, block by block.
  void exchange_combine(int to, ConstData out, int from, Data in, ReduceOp op);

 private:
  Endpoint* endpoint_;
  Arena* arena_;
  const Waiter* waiter_;
  FrameHeader header_;
  std::vector<Ticket> started_;
};

/// The part of `count` elements that belongs to `index` of `parts`: the first ones get one more when it does not
/// divide.
struct Part {
  size_t first, count;
};
Part part_of(size_t count, int parts, int index);

inline ConstBytes bytes_of(ConstData data) { return {data.bytes, data.num_bytes()}; }
inline Bytes bytes_of(Data data) { return {data.bytes, data.num_bytes()}; }

}  // namespace trireme
