// All-reduce with a fixed order of additions at the bytes of a ring: all-to-all, a local sum in tree order, all-gather.
#include <algorithm>

#include "trireme/comm/algorithms/algorithms.h"

namespace trireme {
namespace {

// Each rank reduces its part of `in` into `out`, block by block; `in` is cut by `part_at(rank)`.
template <typename PartAt>
void reduce_own_part(Messenger& messenger, ConstData in, Data out, ReduceOp op, PartAt part_at) {
  const int p = messenger.size(), rank = messenger.rank();
  const size_t block = std::max<size_t>(Messenger::kBlockBytes / size_of(in.type), 1);
  const auto blocks_of = [&](int r) { return std::max<size_t>((part_at(r).count + block - 1) / block, 1); };
  const auto block_of = [&](int r, size_t b) {
    const Part part = part_at(r);
    const size_t first = std::min(b * block, part.count);
    return in.part(part.first + first, std::min(block, part.count - first));
  };

  // All sends are started at once; blocks arrive in two sets of scratch memory, one of which is reduced while the other
  // is being filled.
  const size_t own_blocks = blocks_of(rank);
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
  std::vector<Messenger::Ticket> arriving = start_block(0);
  size_t most_blocks = 1;
  for (int peer = 0; peer < p; ++peer) most_blocks = std::max(most_blocks, blocks_of(peer));
  for (size_t b = 0; b < most_blocks; ++b) {
    for (int step = 1; step < p; ++step) {
      const int to = (rank + step) % p;
      if (b < blocks_of(to)) messenger.start_send(to, bytes_of(block_of(to, b)));
    }
  }
  std::vector<const void*> sources(static_cast<size_t>(p));
  for (size_t b = 0; b < own_blocks; ++b) {
    const std::vector<Messenger::Ticket> current = std::move(arriving);
    if (b + 1 < own_blocks) arriving = start_block(b + 1);
    if (!current.empty()) messenger.wait(current);
    const ConstData own = block_of(rank, b);
    for (int peer = 0; peer < p; ++peer) {
      sources[static_cast<size_t>(peer)] = peer == rank ? own.bytes : scratch[b & 1][static_cast<size_t>(peer)].data();
    }
    void* const destinations[] = {out.part(b * block, own.count).bytes};
    reduce_tree(op, in.type, sources, destinations, own.count);
  }
  messenger.finish();
}

}  // namespace

void all_reduce_ordered(Messenger& messenger, Data data, ReduceOp op) {
  const int p = messenger.size();
  if (p == 1) return;
  const auto part_at = [&](int r) { return part_of(data.count, p, r); };
  const Part own = part_at(messenger.rank());
  reduce_own_part(messenger, data, data.part(own.first, own.count), op, part_at);
  all_gather_parts(messenger, data);
}

void reduce_scatter_v_by_messages(Messenger& messenger, ConstData in, Data out, std::span<const size_t> counts,
                                  ReduceOp op) {
  std::vector<Part> parts;
  for (size_t first = 0; const size_t count : counts) {
    parts.push_back({first, count});
    first += count;
  }
  reduce_own_part(messenger, in, out, op, [&](int r) { return parts[static_cast<size_t>(r)]; });
}

void reduce_scatter_by_messages(Messenger& messenger, ConstData in, Data out, ReduceOp op) {
  reduce_scatter_v_by_messages(messenger, in, out, std::vector(static_cast<size_t>(messenger.size()), out.count), op);
}

}  // namespace trireme
