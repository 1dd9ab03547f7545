// Sequential all-reduce: one rank does everything, one peer at a time.
#include "trireme/comm/algorithms/algorithms.h"

namespace trireme {

void all_reduce_sequential(Messenger& messenger, Data data, ReduceOp op) {
  const int p = messenger.size();
  if (messenger.rank() != 0) {
    messenger.send(0, bytes_of(ConstData(data)));
    messenger.recv(0, bytes_of(data));
    return;
  }
  // A stack of partial sums like the digits of a binary counter: two of equal size become one of twice the size, which
  // is the tree of [Note: Reduction order] with lg p buffers.
  struct Partial {
    Data sum;
    int leaves;
  };
  std::vector<Partial> stack{{data, 1}};
  std::vector<Data> spare;
  const auto merge = [&] {
    const Partial right = stack.back();
    stack.pop_back();
    Partial& left = stack.back();
    combine(op, data.type, left.sum.bytes, left.sum.bytes, right.sum.bytes, data.count);
    left.leaves += right.leaves;
    spare.push_back(right.sum);
  };
  for (int peer = 1; peer < p; ++peer) {
    if (spare.empty()) spare.push_back(Data(messenger.scratch(data.num_bytes()).data(), data.count, data.type));
    stack.push_back({spare.back(), 1});
    spare.pop_back();
    messenger.recv(peer, bytes_of(stack.back().sum));
    while (stack.size() > 1 && stack.back().leaves == stack[stack.size() - 2].leaves) merge();
  }
  while (stack.size() > 1) merge();
  for (int peer = 1; peer < p; ++peer) messenger.send(peer, bytes_of(ConstData(data)));
}

}  // namespace trireme
