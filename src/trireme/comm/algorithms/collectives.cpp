// The collectives other than all-reduce, by messages.
#include <algorithm>
#include <cstring>

#include "trireme/comm/algorithms/algorithms.h"

namespace trireme {
namespace {

// From this size on a broadcast is worth two steps: scatter, then all-gather.
constexpr size_t kLongBroadcast = 256 * 1024;

void copy_elsewhere(Data out, ConstData in) {
  if (in.count > 0 && out.bytes != in.bytes) std::memmove(out.bytes, in.bytes, in.num_bytes());
}

// Parts are at offsets[r] .. offsets[r + 1] of data; each rank has its own and gets the others from all at once.
void all_gather_direct(Messenger& messenger, Data data, std::span<const size_t> offsets) {
  const int p = messenger.size(), rank = messenger.rank();
  if (p == 1) return;
  const auto part = [&](int r) {
    const size_t i = static_cast<size_t>(r);
    return data.part(offsets[i], offsets[i + 1] - offsets[i]);
  };
  std::vector<Messenger::Ticket> tickets;
  for (int step = 1; step < p; ++step) {
    const int from = (rank + p - step) % p;
    tickets.push_back(messenger.start_recv(from, bytes_of(part(from))));
  }
  for (int step = 1; step < p; ++step) {
    tickets.push_back(messenger.start_send((rank + step) % p, bytes_of(ConstData(part(rank)))));
  }
  messenger.wait(tickets);
}

std::vector<size_t> equal_offsets(size_t count, int p) {
  std::vector<size_t> offsets;
  for (int r = 0; r < p; ++r) offsets.push_back(part_of(count, p, r).first);
  offsets.push_back(count);
  return offsets;
}

}  // namespace

void all_gather_parts(Messenger& messenger, Data data) {
  all_gather_direct(messenger, data, equal_offsets(data.count, messenger.size()));
}

void barrier_by_messages(Messenger& messenger) {
  // Dissemination: after step k every rank has heard, directly or not, from the 2^(k+1) ranks before it.
  const int p = messenger.size(), rank = messenger.rank();
  for (int distance = 1; distance < p; distance *= 2) {
    messenger.exchange((rank + distance) % p, {}, (rank + p - distance) % p, {});
  }
}

void broadcast_by_messages(Messenger& messenger, Data data, int root) {
  const int p = messenger.size();
  if (p == 1) return;
  const int place = (messenger.rank() + p - root) % p;  // the root is at place 0
  const auto rank_at = [&](int at) { return (at + root) % p; };
  if (p > 2 && data.num_bytes() >= kLongBroadcast) {
    const auto part = [&](int r) {
      const Part range = part_of(data.count, p, r);
      return data.part(range.first, range.count);
    };
    if (place == 0) {
      std::vector<Messenger::Ticket> tickets;
      for (int r = 0; r < p; ++r) {
        if (r != root) tickets.push_back(messenger.start_send(r, bytes_of(ConstData(part(r)))));
      }
      messenger.wait(tickets);
    } else {
      messenger.recv(root, bytes_of(part(messenger.rank())));
    }
    all_gather_parts(messenger, data);
    return;
  }
  // A binomial tree: who has the data at distance 2^k gives it to the one 2^k further on.
  int reach = 1;
  while (reach <= place) reach *= 2;
  if (place > 0) messenger.recv(rank_at(place - reach / 2), bytes_of(data));
  for (int distance = reach; place + distance < p; distance *= 2) {
    messenger.send(rank_at(place + distance), bytes_of(ConstData(data)));
  }
}

void scatter_by_messages(Messenger& messenger, ConstData in, Data out, int root) {
  if (messenger.rank() != root) {
    messenger.recv(root, bytes_of(out));
    return;
  }
  std::vector<Messenger::Ticket> tickets;
  for (int r = 0; r < messenger.size(); ++r) {
    const ConstData block = in.part(static_cast<size_t>(r) * out.count, out.count);
    if (r == root) {
      copy_elsewhere(out, block);
    } else {
      tickets.push_back(messenger.start_send(r, bytes_of(block)));
    }
  }
  if (!tickets.empty()) messenger.wait(tickets);
}

void gather_by_messages(Messenger& messenger, ConstData in, Data out, int root) {
  if (messenger.rank() != root) {
    messenger.send(root, bytes_of(in));
    return;
  }
  std::vector<Messenger::Ticket> tickets;
  for (int r = 0; r < messenger.size(); ++r) {
    const Data block = out.part(static_cast<size_t>(r) * in.count, in.count);
    if (r == root) {
      copy_elsewhere(block, in);
    } else {
      tickets.push_back(messenger.start_recv(r, bytes_of(block)));
    }
  }
  if (!tickets.empty()) messenger.wait(tickets);
}

void all_gather_by_messages(Messenger& messenger, ConstData in, Data out, std::span<const size_t> counts) {
  std::vector<size_t> offsets{0};
  for (const size_t count : counts) offsets.push_back(offsets.back() + count);
  const size_t rank = static_cast<size_t>(messenger.rank());
  copy_elsewhere(out.part(offsets[rank], counts[rank]), in);
  all_gather_direct(messenger, out, offsets);
}

void reduce_by_messages(Messenger& messenger, ConstData in, Data out, ReduceOp op, int root) {
  const int p = messenger.size(), rank = messenger.rank();
  const Bytes sum_bytes = rank == root ? bytes_of(out) : messenger.scratch(in.num_bytes());
  const Data sum(sum_bytes.data(), in.count, in.type);
  copy_elsewhere(sum, in);
  // The tree of [Note: Reduction order], its sums at the first rank of each block.
  Bytes other;
  int first = 0, count = p;
  std::vector<int> partners;  // the right-hand blocks whose sums this rank takes, outermost first
  int takes_from_me = -1;
  while (count > 1) {
    const int left = static_cast<int>(tree_split(static_cast<size_t>(count)));
    if (rank < first + left) {
      if (rank == first) partners.push_back(first + left);
      count = left;
    } else {
      if (rank == first + left) takes_from_me = first;
      first += left;
      count -= left;
      if (rank == first) partners.clear();
    }
  }
  if (!partners.empty()) other = messenger.scratch(in.num_bytes());
  for (size_t i = partners.size(); i-- > 0;) {
    messenger.recv(partners[i], other);
    combine(op, in.type, sum.bytes, sum.bytes, other.data(), in.count);
  }
  if (takes_from_me >= 0) messenger.send(takes_from_me, bytes_of(ConstData(sum)));
  if (root != 0 && rank == 0) messenger.send(root, bytes_of(ConstData(sum)));
  if (root != 0 && rank == root) messenger.recv(0, bytes_of(out));
}

void all_to_all_by_messages(Messenger& messenger, ConstData in, std::span<const size_t> send_counts, Data out,
                            std::span<const size_t> recv_counts) {
  const int p = messenger.size(), rank = messenger.rank();
  std::vector<size_t> send_at{0}, recv_at{0};
  for (const size_t count : send_counts) send_at.push_back(send_at.back() + count);
  for (const size_t count : recv_counts) recv_at.push_back(recv_at.back() + count);
  const auto sent = [&](int r) {
    return in.part(send_at[static_cast<size_t>(r)], send_counts[static_cast<size_t>(r)]);
  };
  const auto got = [&](int r) {
    return out.part(recv_at[static_cast<size_t>(r)], recv_counts[static_cast<size_t>(r)]);
  };
  copy_elsewhere(got(rank), sent(rank));
  std::vector<Messenger::Ticket> tickets;
  for (int step = 1; step < p; ++step) {
    const int from = (rank + p - step) % p;
    tickets.push_back(messenger.start_recv(from, bytes_of(got(from))));
  }
  for (int step = 1; step < p; ++step) {
    const int to = (rank + step) % p;
    tickets.push_back(messenger.start_send(to, bytes_of(sent(to))));
  }
  if (!tickets.empty()) messenger.wait(tickets);
}

bool keeps_order(Algorithm algorithm, int num_ranks) {
  switch (algorithm) {
    case Algorithm::kRing:
    case Algorithm::kTree:
      return num_ranks <= 2;
    case Algorithm::kRecursiveHalving:
      return (num_ranks & (num_ranks - 1)) == 0;
    case Algorithm::kFarthestFirst:
      return num_ranks <= 2;
    default:
      return true;
  }
}

}  // namespace trireme
