// All-reduce with a fixed order of additions at the bytes of a ring: all-to-all, a local sum in tree order, all-gather.
#include <algorithm>
#include <deque>

#include "trireme/comm/algorithms/algorithms.h"

namespace trireme {
namespace {

size_t block_length(const Messenger& messenger, DataType type) {
  return std::max<size_t>(messenger.block_bytes() / size_of(type), 1);
}

/// An empty part is one empty block.
size_t blocks_of_part(const Part& part, size_t block) { return std::max<size_t>((part.count + block - 1) / block, 1); }

Part block_of_part(const Part& part, size_t index, size_t block) {
  const size_t first = std::min(index * block, part.count);
  return {part.first + first, std::min(block, part.count - first)};
}

// Each rank reduces its part of `in` into `out`, block by block; `in` is cut by `part_at(rank)`. `block_done(b, sends)`
// is called for each block, of all ranks' longest part, when this rank's block b is reduced; `sends`, by rank, are the
// messages with the others' block b.
template <typename PartAt, typename BlockDone>
void reduce_own_part(Messenger& messenger, ConstData in, Data out, ReduceOp op, PartAt part_at, BlockDone block_done) {
  const int p = messenger.size(), rank = messenger.rank();
  const size_t block = block_length(messenger, in.type);
  const auto block_of = [&](int r, size_t b) {
    const Part part = block_of_part(part_at(r), b, block);
    return in.part(part.first, part.count);
  };

  // Blocks arrive in two sets of scratch memory, one of which is reduced while the other is being filled.
  const size_t own_blocks = blocks_of_part(part_at(rank), block);
  const size_t scratch_bytes = block_of(rank, 0).num_bytes();
  std::vector<Bytes> scratch[2];
  for (auto& set : scratch) {
    for (int peer = 0; peer < p; ++peer) set.push_back(peer == rank ? Bytes() : messenger.scratch(scratch_bytes));
    if (own_blocks == 1) break;
  }
  const auto start_block = [&](size_t b) {
    std::vector<Messenger::Ticket> tickets;
    for (int step = 1; step < p; ++step) {
      const int from = (rank + p - step) % p;
      const Bytes target = scratch[b & 1][static_cast<size_t>(from)].first(block_of(rank, b).num_bytes());
      tickets.push_back(messenger.start_recv(from, target));
    }
    return tickets;
  };
  size_t most_blocks = 1;
  for (int peer = 0; peer < p; ++peer) most_blocks = std::max(most_blocks, blocks_of_part(part_at(peer), block));
  std::deque<std::vector<Messenger::Ticket>> sends;  // of block b first
  const auto send_block = [&](size_t b) {
    if (b >= most_blocks) return;
    sends.emplace_back(static_cast<size_t>(p));
    for (int step = 1; step < p; ++step) {
      const int to = (rank + step) % p;
      if (b >= blocks_of_part(part_at(to), block)) continue;
      sends.back()[static_cast<size_t>(to)] = messenger.start_send(to, bytes_of(block_of(to, b)));
    }
  };

  std::vector<Messenger::Ticket> arriving = start_block(0);
  const size_t ahead = messenger.blocks_on_the_way() - 1;
  for (size_t b = 0; b < ahead; ++b) send_block(b);
  std::vector<const void*> sources(static_cast<size_t>(p));
  for (size_t b = 0; b < most_blocks; ++b) {
    send_block(b + ahead);
    if (b < own_blocks) {
      const std::vector<Messenger::Ticket> current = std::move(arriving);
      if (b + 1 < own_blocks) arriving = start_block(b + 1);
      if (!current.empty()) messenger.wait(current);
      const ConstData own = block_of(rank, b);
      for (int peer = 0; peer < p; ++peer) {
        const size_t i = static_cast<size_t>(peer);
        sources[i] = peer == rank ? own.bytes : scratch[b & 1][i].data();
      }
      void* const destinations[] = {out.part(b * block, own.count).bytes};
      reduce_tree(op, in.type, sources, destinations, own.count, static_cast<size_t>(p));
    }
    block_done(b, sends.front());
    sends.pop_front();
  }
}

}  // namespace

// A block goes out to all as soon as it is reduced, while it is in the cache.
void all_reduce_ordered(Messenger& messenger, Data data, ReduceOp op) {
  const int p = messenger.size(), rank = messenger.rank();
  if (p == 1) return;
  const size_t block = block_length(messenger, data.type);
  const auto part_at = [&](int r) { return part_of(data.count, p, r); };
  const auto block_of = [&](int r, size_t b) {
    const Part part = block_of_part(part_at(r), b, block);
    return data.part(part.first, part.count);
  };
  constexpr int kGathering = 1;  // lane
  std::vector<Messenger::Ticket> gathered;
  const auto gather_block = [&](size_t b, const std::vector<Messenger::Ticket>& sends) {
    for (int step = 1; step < p; ++step) {
      const int to = (rank + step) % p, from = (rank + p - step) % p;
      if (b < blocks_of_part(part_at(rank), block)) {
        gathered.push_back(messenger.start_send(to, bytes_of(ConstData(block_of(rank, b))), kGathering));
      }
      // A peer's sum goes where the operand was that it has been sent.
      if (const Messenger::Ticket& sent = sends[static_cast<size_t>(from)]) {
        messenger.settle(sent);
        gathered.push_back(messenger.start_recv(from, bytes_of(block_of(from, b)), kGathering));
      }
    }
  };
  const Part own = part_at(rank);
  reduce_own_part(messenger, data, data.part(own.first, own.count), op, part_at, gather_block);
  messenger.wait(gathered);
  messenger.finish();
}

void reduce_scatter_v_by_messages(Messenger& messenger, ConstData in, Data out, std::span<const size_t> counts,
                                  ReduceOp op) {
  std::vector<Part> parts;
  for (size_t first = 0; const size_t count : counts) {
    parts.push_back({first, count});
    first += count;
  }
  const auto part_at = [&](int r) { return parts[static_cast<size_t>(r)]; };
  reduce_own_part(messenger, in, out, op, part_at, [](size_t, const std::vector<Messenger::Ticket>&) {});
  messenger.finish();
}

void reduce_scatter_by_messages(Messenger& messenger, ConstData in, Data out, ReduceOp op) {
  reduce_scatter_v_by_messages(messenger, in, out, std::vector(static_cast<size_t>(messenger.size()), out.count), op);
}

}  // namespace trireme
