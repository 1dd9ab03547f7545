// Butterfly all-reduce: whole vectors are exchanged between growing blocks of ranks, ⌈lg p⌉ times.
//
// A block is a node of the tree of [Note: Reduction order]: the left part has a power of two of ranks, the right part
// the rest. When the right part is smaller, each of its ranks serves several of the left.
#include "trireme/comm/algorithms/algorithms.h"

namespace trireme {
namespace {

// All-reduces inside [first, first + count), which contains this rank.
void reduce_block(Messenger& messenger, Data data, ReduceOp op, int first, int count, Bytes scratch) {
  if (count == 1) return;
  const int left = static_cast<int>(tree_split(static_cast<size_t>(count))), right = count - left;
  const int place = messenger.rank() - first;
  std::vector<Messenger::Ticket> tickets;
  if (place < left) {
    reduce_block(messenger, data, op, first, left, scratch);
    const int partner = first + left + place % right;
    tickets.push_back(messenger.start_recv(partner, scratch));
    if (place < right) tickets.push_back(messenger.start_send(partner, bytes_of(ConstData(data))));
  } else {
    reduce_block(messenger, data, op, first + left, right, scratch);
    tickets.push_back(messenger.start_recv(first + place - left, scratch));
    for (int peer = place - left; peer < left; peer += right) {
      tickets.push_back(messenger.start_send(first + peer, bytes_of(ConstData(data))));
    }
  }
  messenger.wait(tickets);
  combine(op, data.type, data.bytes, data.bytes, scratch.data(), data.count);
}

}  // namespace

void all_reduce_butterfly(Messenger& messenger, Data data, ReduceOp op) {
  if (messenger.size() == 1) return;
  reduce_block(messenger, data, op, 0, messenger.size(), messenger.scratch(data.num_bytes()));
}

}  // namespace trireme
