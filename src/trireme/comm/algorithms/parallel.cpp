// Parallel all-reduce: everybody sends everything to everybody at once, and adds it up alone.
#include "trireme/comm/algorithms/algorithms.h"

namespace trireme {

void all_reduce_parallel(Messenger& messenger, Data data, ReduceOp op) {
  const int p = messenger.size(), rank = messenger.rank();
  if (p == 1) return;
  std::vector<const void*> sources(static_cast<size_t>(p), data.bytes);
  std::vector<Messenger::Ticket> tickets;
  for (int step = 1; step < p; ++step) {
    const int from = (rank + p - step) % p;
    const Bytes received = messenger.scratch(data.num_bytes());
    sources[static_cast<size_t>(from)] = received.data();
    tickets.push_back(messenger.start_recv(from, received));
  }
  for (int step = 1; step < p; ++step) {
    tickets.push_back(messenger.start_send((rank + step) % p, bytes_of(ConstData(data))));
  }
  messenger.wait(tickets);
  void* const destinations[] = {data.bytes};
  reduce_tree(op, data.type, sources, destinations, data.count);
}

}  // namespace trireme
