// Recursive halving and doubling: exchange half of what is left with a partner, lg p times, then the same back.
//
//   nearest first, 4 ranks, slices by letter:      step 1 partner r^1        step 2 partner r^2
//     rank 0 keeps a b, gives c d to rank 1        (0 1)                     keeps a, gives b to rank 2
//     rank 1 keeps c d, gives a b to rank 0        (0 1)                     keeps c, gives d to rank 3
// Partners join neighbours first, so the sums are the tree of [Note: Reduction order].
#include <bit>

#include "trireme/comm/algorithms/algorithms.h"

namespace trireme {
namespace {

struct Range {
  size_t first, count;
};

// Worlds that are no power of two: the first 2·extra ranks pair up, and only one of each pair takes part.
void halving_and_doubling(Messenger& messenger, Data data, ReduceOp op, bool nearest_first) {
  const int p = messenger.size(), rank = messenger.rank();
  if (p == 1) return;
  const int active = static_cast<int>(std::bit_floor(static_cast<unsigned>(p)));
  const int extra = p - active;
  const bool folded = rank < 2 * extra;
  if (folded && rank % 2 == 1) {
    messenger.send(rank - 1, bytes_of(ConstData(data)));
    messenger.recv(rank - 1, bytes_of(data));
    return;
  }
  if (folded) {
    const Bytes other = messenger.scratch(data.num_bytes());
    messenger.recv(rank + 1, other);
    combine(op, data.type, data.bytes, data.bytes, other.data(), data.count);
  }
  const int number = folded ? rank / 2 : rank - extra;  // among the active ones
  const auto rank_of = [&](int n) { return n < extra ? 2 * n : n + extra; };

  std::vector<Range> kept{{0, data.count}};
  std::vector<int> distances;
  for (int d = 1; d < active; d *= 2) distances.push_back(nearest_first ? d : active / 2 / d);
  for (const int distance : distances) {
    const Range whole = kept.back();
    const Range low{whole.first, whole.count - whole.count / 2};
    const Range high{whole.first + low.count, whole.count / 2};
    const bool keeps_low = (number & distance) == 0;
    const Range keep = keeps_low ? low : high, give = keeps_low ? high : low;
    const int partner = rank_of(number ^ distance);
    messenger.exchange_combine(partner, data.part(give.first, give.count), partner, data.part(keep.first, keep.count),
                               op);
    kept.push_back(keep);
  }
  for (size_t step = distances.size(); step-- > 0;) {
    const Range whole = kept[step], own = kept[step + 1];
    const Range other{own.first == whole.first ? own.first + own.count : whole.first, whole.count - own.count};
    const int partner = rank_of(number ^ distances[step]);
    messenger.exchange(partner, bytes_of(ConstData(data.part(own.first, own.count))), partner,
                       bytes_of(data.part(other.first, other.count)));
  }
  if (folded) messenger.send(rank + 1, bytes_of(ConstData(data)));
}

}  // namespace

void all_reduce_recursive_halving(Messenger& messenger, Data data, ReduceOp op) {
  halving_and_doubling(messenger, data, op, true);
}

void all_reduce_farthest_first(Messenger& messenger, Data data, ReduceOp op) {
  halving_and_doubling(messenger, data, op, false);
}

}  // namespace trireme
