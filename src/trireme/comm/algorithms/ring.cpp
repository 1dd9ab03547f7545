// Ring all-reduce: p−1 steps in which a growing sum goes round, p−1 steps in which the result does.
#include <algorithm>

#include "trireme/comm/algorithms/algorithms.h"

namespace trireme {

void all_reduce_ring(Messenger& messenger, Data data, ReduceOp op) {
  const int p = messenger.size(), rank = messenger.rank();
  if (p == 1) return;
  const int next = (rank + 1) % p, previous = (rank + p - 1) % p;
  const size_t largest = part_of(data.count, p, 0).count;
  const size_t block = std::max<size_t>(messenger.block_bytes() / size_of(data.type), 1);
  const size_t blocks = std::max<size_t>((largest + block - 1) / block, 1);

  // Block b of the slice that is sent in step s: a slice moves on by one rank each step.
  const auto slice_block = [&](int slice, size_t b) {
    const Part part = part_of(data.count, p, ((slice % p) + p) % p);
    const size_t first = std::min(b * block, part.count);
    return data.part(part.first + first, std::min(block, part.count - first));
  };
  const auto sent = [&](int step, size_t b) { return slice_block(rank - step, b); };
  const auto received = [&](int step, size_t b) { return slice_block(rank - step - 1, b); };

  const size_t scratch_bytes = std::min(largest, block) * size_of(data.type);
  const Bytes scratch[2] = {messenger.scratch(scratch_bytes), messenger.scratch(scratch_bytes)};
  // The blocks of all steps form one stream; a block is sent on as soon as it has been combined, so the next step
  // begins while this one is still under way.
  const size_t steps = static_cast<size_t>(p) - 1;
  const auto start_receive = [&](size_t i) {
    const int step = static_cast<int>(i / blocks);
    const Data target = received(step, i % blocks);
    return messenger.start_recv(previous, step < p - 1 ? scratch[i & 1].first(target.num_bytes()) : bytes_of(target));
  };
  for (size_t b = 0; b < blocks; ++b) messenger.start_send(next, bytes_of(ConstData(sent(0, b))));
  Messenger::Ticket arriving = start_receive(0);
  for (size_t i = 0; i < 2 * steps * blocks; ++i) {
    const Messenger::Ticket current = arriving;
    if (i + 1 < 2 * steps * blocks) arriving = start_receive(i + 1);
    messenger.wait(current);
    const int step = static_cast<int>(i / blocks);
    const Data block_data = received(step, i % blocks);
    if (step < p - 1) {
      combine(op, data.type, block_data.bytes, block_data.bytes, scratch[i & 1].data(), block_data.count);
    }
    if (step < 2 * (p - 1) - 1) messenger.start_send(next, bytes_of(ConstData(block_data)));
  }
  messenger.finish();
}

}  // namespace trireme
