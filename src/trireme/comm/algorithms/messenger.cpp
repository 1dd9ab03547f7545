#include "trireme/comm/algorithms/messenger.h"

#include <algorithm>
#include <array>
#include <cstdlib>

namespace trireme {

Bytes Arena::take(size_t num_bytes) {
  const size_t size = std::max<size_t>((num_bytes + 63) / 64 * 64, 64);
  if (next_ == blocks_.size()) blocks_.push_back({{nullptr, std::free}, 0});
  Block& block = blocks_[next_++];
  if (block.size < size) {
    block.memory.reset(static_cast<std::byte*>(std::aligned_alloc(64, size)));
    if (!block.memory) throw std::bad_alloc();
    block.size = size;
  }
  return {block.memory.get(), num_bytes};
}

void Arena::reset() { next_ = 0; }

void Messenger::send(int to, ConstBytes data) { wait(start_send(to, data)); }
void Messenger::recv(int from, Bytes data) { wait(start_recv(from, data)); }

void Messenger::exchange(int to, ConstBytes out, int from, Bytes in) {
  const std::array tickets{start_recv(from, in), start_send(to, out)};
  wait(tickets);
}

Messenger::Ticket Messenger::start_send(int to, ConstBytes data, int lane) {
  FrameHeader header = header_;
  header.lane = static_cast<uint16_t>(header.lane + lane);
  started_.push_back(endpoint_->start_send(to, header, data));
  return started_.back();
}

Messenger::Ticket Messenger::start_recv(int from, Bytes data, int lane) {
  FrameHeader header = header_;
  header.lane = static_cast<uint16_t>(header.lane + lane);
  started_.push_back(endpoint_->start_recv(from, header, data));
  return started_.back();
}

void Messenger::wait(std::span<const Ticket> tickets) {
  endpoint_->wait(tickets, *waiter_);
  endpoint_->end_round(tickets);
  // Forgetting what is done keeps finish() short in long pipelines.
  if (started_.size() >= 64) {
    std::erase_if(started_, [](const Ticket& ticket) { return ticket->done.load(std::memory_order_acquire); });
  }
}

void Messenger::settle(const Ticket& ticket) { endpoint_->wait(std::span(&ticket, 1), *waiter_); }

void Messenger::finish() {
  endpoint_->wait(started_, *waiter_);
  started_.clear();
}

void Messenger::exchange_combine(int to, ConstData out, int from, Data in, ReduceOp op) {
  const size_t block = std::max<size_t>(block_bytes() / size_of(in.type), 1);
  for (size_t first = 0; first == 0 || first < out.count; first += block) {
    start_send(to, bytes_of(out.part(first, std::min(block, out.count - first))));
  }
  const Bytes scratch[2] = {this->scratch(std::min(block, in.count) * size_of(in.type)),
                            this->scratch(std::min(block, in.count) * size_of(in.type))};
  const size_t num_blocks = std::max<size_t>((in.count + block - 1) / block, 1);
  const auto part = [&](size_t i) { return in.part(i * block, std::min(block, in.count - i * block)); };
  Ticket next = start_recv(from, scratch[0].first(part(0).num_bytes()));
  for (size_t i = 0; i < num_blocks; ++i) {
    const Ticket current = next;
    if (i + 1 < num_blocks) next = start_recv(from, scratch[(i + 1) & 1].first(part(i + 1).num_bytes()));
    wait(current);
    const Data target = part(i);
    combine(op, in.type, target.bytes, target.bytes, scratch[i & 1].data(), target.count);
  }
  finish();
}

Part part_of(size_t count, int parts, int index) {
  const size_t n = static_cast<size_t>(parts), i = static_cast<size_t>(index);
  const size_t each = count / n, more = count % n;
  return {i * each + std::min(i, more), each + (i < more ? 1 : 0)};
}

}  // namespace trireme
