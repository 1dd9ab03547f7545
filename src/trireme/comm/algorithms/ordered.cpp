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

  std::vector<Bytes> scratch(static_cast<size_t>(p));
  for (int peer = 0; peer < p; ++peer) {
    if (peer != rank) scratch[static_cast<size_t>(peer)] = messenger.scratch(block_of(rank, 0).num_bytes());
  }
  size_t most_blocks = 1;
  for (int peer = 0; peer < p; ++peer) most_blocks = std::max(most_blocks, blocks_of(peer));
  std::vector<const void*> sources(static_cast<size_t>(p));
  for (size_t b = 0; b < most_blocks; ++b) {
    std::vector<Messenger::Ticket> tickets;
    const bool receives = b < blocks_of(rank);
    for (int step = 1; step < p; ++step) {
      const int from = (rank + p - step) % p;
      if (receives) {
        const Bytes target = scratch[static_cast<size_t>(from)].first(block_of(rank, b).num_bytes());
        tickets.push_back(messenger.start_recv(from, target));
        sources[static_cast<size_t>(from)] = target.data();
      }
    }
    for (int step = 1; step < p; ++step) {
      const int to = (rank + step) % p;
      if (b < blocks_of(to)) tickets.push_back(messenger.start_send(to, bytes_of(block_of(to, b))));
    }
    if (!tickets.empty()) messenger.wait(tickets);
    if (!receives) continue;
    const ConstData own = block_of(rank, b);
    sources[static_cast<size_t>(rank)] = own.bytes;
    void* const destinations[] = {out.part(b * block, own.count).bytes};
    reduce_tree(op, in.type, sources, destinations, own.count);
  }
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

void reduce_scatter_by_messages(Messenger& messenger, ConstData in, Data out, ReduceOp op) {
  reduce_own_part(messenger, in, out, op, [&](int r) { return Part{static_cast<size_t>(r) * out.count, out.count}; });
}

}  // namespace trireme
