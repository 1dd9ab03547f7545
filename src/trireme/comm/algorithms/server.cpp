// All-reduce through a parameter server: all push at once, the server sums, all pull at once.
#include "trireme/comm/algorithms/algorithms.h"

namespace trireme {

void all_reduce_server(Messenger& messenger, Data data, ReduceOp op) {
  const int p = messenger.size();
  if (messenger.rank() != 0) {
    messenger.send(0, bytes_of(ConstData(data)));
    messenger.recv(0, bytes_of(data));
    return;
  }
  std::vector<const void*> sources{data.bytes};
  std::vector<Messenger::Ticket> pushes, pulls;
  for (int worker = 1; worker < p; ++worker) {
    const Bytes pushed = messenger.scratch(data.num_bytes());
    sources.push_back(pushed.data());
    pushes.push_back(messenger.start_recv(worker, pushed));
  }
  if (p > 1) messenger.wait(pushes);
  void* const destinations[] = {data.bytes};
  reduce_tree(op, data.type, sources, destinations, data.count);
  for (int worker = 1; worker < p; ++worker) pulls.push_back(messenger.start_send(worker, bytes_of(ConstData(data))));
  if (p > 1) messenger.wait(pulls);
}

}  // namespace trireme
