// Messages, bytes and rounds of every algorithm, counted on running ranks and compared with the formulas.
//
// p ranks, n bytes, divisible by p and by 64, and short enough not to be cut into blocks. Each case has a world of its
// own, so that every rank's count of rounds begins at zero.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <functional>

#include "trireme/comm/communicator_impl.h"
#include "trireme/comm/world.h"

namespace trireme {
namespace {

std::vector<int> sizes() {
  if (std::getenv("TRIREME_SANITIZED") != nullptr) return {2, 3, 4, 5, 7, 8, 13, 16};
  return {2, 3, 4, 5, 6, 7, 8, 12, 13, 16, 24, 31, 32, 33, 48, 63, 64};
}

using Counts = std::vector<Traffic>;  // by rank

size_t elements(int p) { return 64 * static_cast<size_t>(p); }
uint64_t bytes(int p) { return elements(p) * sizeof(float); }
uint64_t floor_lg(int p) { return static_cast<uint64_t>(std::bit_width(static_cast<unsigned>(p))) - 1; }
uint64_t ceil_lg(int p) { return static_cast<uint64_t>(std::bit_width(static_cast<unsigned>(p - 1))); }
bool is_power_of_two(int p) { return std::has_single_bit(static_cast<unsigned>(p)); }

Traffic sum(const Counts& counts) {
  Traffic total;
  for (const Traffic& traffic : counts) {
    total.messages_sent += traffic.messages_sent;
    total.messages_received += traffic.messages_received;
    total.bytes_sent += traffic.bytes_sent;
    total.bytes_received += traffic.bytes_received;
    total.rounds = std::max(total.rounds, traffic.rounds);
  }
  return total;
}

/// What each rank sent and received in `body`, and the rounds it took.
Counts count(int p, const std::function<void(Communicator&)>& body) {
  Counts counts(static_cast<size_t>(p));
  run_as_threads(p, [&](World& world) {
    const Traffic before = world.comm().traffic();
    EXPECT_EQ(before.rounds, 0u);
    body(world.comm());
    counts[static_cast<size_t>(world.rank())] = world.comm().traffic();
  });
  const Traffic total = sum(counts);
  EXPECT_EQ(total.bytes_sent, total.bytes_received);
  EXPECT_EQ(total.messages_sent, total.messages_received);
  return counts;
}

Counts count_all_reduce(int p, Algorithm algorithm) {
  return count(p, [&](Communicator& comm) {
    std::vector<float> data(elements(p), 1.f);
    CallOptions options;
    options.algorithm = algorithm;
    options.ordered = false;
    comm.all_reduce(data, ReduceOp::kSum, options);
    EXPECT_EQ(data.front(), static_cast<float>(p));
    EXPECT_EQ(data.back(), static_cast<float>(p));
  });
}

/// A collective by messages, though the ranks share memory.
Counts count_by_messages(int p, const std::function<void(Messenger&)>& body) {
  return count(p, [&](Communicator& comm) {
    comm.impl().execute({}, 0, {}, false, [&](const BoardCollectives::Call& call) {
      Messenger messenger = comm.impl().messenger(call);
      body(messenger);
    });
  });
}

uint64_t most_bytes_sent(const Counts& counts) {
  uint64_t most = 0;
  for (const Traffic& traffic : counts) most = std::max(most, traffic.bytes_sent);
  return most;
}

struct Expected {
  uint64_t messages_sent, messages_received, bytes_sent, bytes_received, rounds;
};
Expected both_ways(uint64_t messages, uint64_t num_bytes, uint64_t rounds) {
  return {messages, messages, num_bytes, num_bytes, rounds};
}

void expect_counts(const Counts& counts, const std::function<Expected(int rank)>& expected) {
  for (size_t r = 0; r < counts.size(); ++r) {
    const Expected wanted = expected(static_cast<int>(r));
    const std::string where = "rank " + std::to_string(r) + " of " + std::to_string(counts.size());
    EXPECT_EQ(counts[r].messages_sent, wanted.messages_sent) << where;
    EXPECT_EQ(counts[r].messages_received, wanted.messages_received) << where;
    EXPECT_EQ(counts[r].bytes_sent, wanted.bytes_sent) << where;
    EXPECT_EQ(counts[r].bytes_received, wanted.bytes_received) << where;
    EXPECT_EQ(counts[r].rounds, wanted.rounds) << where;
  }
}

class AllReduceTraffic : public testing::TestWithParam<int> {
 protected:
  const int p = GetParam();
  const uint64_t n = bytes(p);
  const uint64_t others = static_cast<uint64_t>(p) - 1;
  const uint64_t ring_bytes = 2 * others * n / static_cast<uint64_t>(p);  // 2(p−1)/p·n: the least there can be
};
INSTANTIATE_TEST_SUITE_P(Ranks, AllReduceTraffic, testing::ValuesIn(sizes()), testing::PrintToStringParamName());

TEST_P(AllReduceTraffic, Sequential) {
  const Counts counts = count_all_reduce(p, Algorithm::kSequential);
  expect_counts(counts, [&](int rank) -> Expected {
    if (rank == 0) return both_ways(others, others * n, 2 * others);
    return both_ways(1, n, others + static_cast<uint64_t>(rank));  // the last one hears last
  });
  EXPECT_EQ(sum(counts).rounds, 2 * others);
}

TEST_P(AllReduceTraffic, Server) {
  expect_counts(count_all_reduce(p, Algorithm::kServer),
                [&](int rank) { return rank == 0 ? both_ways(others, others * n, 2) : both_ways(1, n, 2); });
}

TEST_P(AllReduceTraffic, Ring) {
  expect_counts(count_all_reduce(p, Algorithm::kRing),
                [&](int) { return both_ways(2 * others, ring_bytes, 2 * others); });
}

TEST_P(AllReduceTraffic, Parallel) {
  const Counts counts = count_all_reduce(p, Algorithm::kParallel);
  expect_counts(counts, [&](int) { return both_ways(others, others * n, 1); });
  EXPECT_EQ(sum(counts).bytes_sent, static_cast<uint64_t>(p) * others * n);
}

TEST_P(AllReduceTraffic, RecursiveHalving) {
  // Beyond q, the largest power of two, ranks 1, 3, … hand their data to their neighbours and get the result back.
  const uint64_t lg = floor_lg(p), q = uint64_t{1} << lg, folded = static_cast<uint64_t>(p) - q;
  const uint64_t halving_bytes = 2 * (q - 1) * n / q;
  for (const Algorithm algorithm : {Algorithm::kRecursiveHalving, Algorithm::kFarthestFirst}) {
    const Counts counts = count_all_reduce(p, algorithm);
    expect_counts(counts, [&](int rank) -> Expected {
      if (folded == 0) return both_ways(2 * lg, ring_bytes, 2 * lg);
      if (static_cast<uint64_t>(rank) >= 2 * folded) return both_ways(2 * lg, halving_bytes, 2 * lg + 1);
      if (rank % 2 == 1) return both_ways(1, n, 2 * lg + 2);
      return both_ways(2 * lg + 1, halving_bytes + n, 2 * lg + 2);
    });
  }
}

TEST_P(AllReduceTraffic, Butterfly) {
  const Counts counts = count_all_reduce(p, Algorithm::kButterfly);
  if (is_power_of_two(p)) {
    expect_counts(counts, [&](int) { return both_ways(floor_lg(p), floor_lg(p) * n, floor_lg(p)); });
    return;
  }
  // Otherwise a rank receives once for each block of the tree that it is in, and never waits for more than ⌈lg p⌉.
  const std::function<uint64_t(int, int)> blocks_around = [&](int place, int size) -> uint64_t {
    if (size == 1) return 0;
    const int left = static_cast<int>(tree_split(static_cast<size_t>(size)));
    return 1 + (place < left ? blocks_around(place, left) : blocks_around(place - left, size - left));
  };
  for (int rank = 0; rank < p; ++rank) {
    const Traffic& traffic = counts[static_cast<size_t>(rank)];
    EXPECT_EQ(traffic.messages_received, blocks_around(rank, p));
    EXPECT_EQ(traffic.bytes_received, blocks_around(rank, p) * n);
    EXPECT_EQ(traffic.bytes_sent, traffic.messages_sent * n);
    EXPECT_EQ(traffic.rounds, ceil_lg(p));
  }
  EXPECT_EQ(sum(counts).messages_sent, sum(counts).messages_received);
}

TEST_P(AllReduceTraffic, Tree) {
  const Counts counts = count_all_reduce(p, Algorithm::kTree);
  // Each of p−1 edges of each of the two trees carries n/2 up and n/2 down.
  const Traffic total = sum(counts);
  EXPECT_EQ(total.messages_sent, 4 * others);
  EXPECT_EQ(total.bytes_sent, 2 * others * n);
  EXPECT_EQ(total.bytes_received, 2 * others * n);
  for (const Traffic& traffic : counts) {
    EXPECT_EQ(traffic.bytes_sent, traffic.messages_sent * n / 2);
    EXPECT_EQ(traffic.bytes_received, traffic.bytes_sent);
    EXPECT_GE(traffic.bytes_sent, n / 2);
    EXPECT_LE(traffic.bytes_sent, 2 * n);  // two children in one tree, none in the other, and two parents
    EXPECT_LE(traffic.rounds, 2 * ceil_lg(p) + 2);
  }
}

TEST_P(AllReduceTraffic, Ordered) {
  expect_counts(count_all_reduce(p, Algorithm::kOrdered), [&](int) { return both_ways(2 * others, ring_bytes, 2); });
}

TEST_P(AllReduceTraffic, InPlace) {
  expect_counts(count_all_reduce(p, Algorithm::kInPlace), [&](int) { return both_ways(0, 0, 0); });
}

// How messages and bytes grow with the number of ranks: what cost_model.h's complexity_of() and the lectures say.
class Growth : public testing::Test {
 protected:
  struct Point {
    double rounds, bytes_per_rank, bytes_in_all;  // bytes as multiples of n
  };
  static Point measure(Algorithm algorithm, int p) {
    const Counts counts = count_all_reduce(p, algorithm);
    const auto n = static_cast<double>(bytes(p));
    const Traffic total = sum(counts);
    return {static_cast<double>(total.rounds), static_cast<double>(most_bytes_sent(counts)) / n,
            static_cast<double>(total.bytes_sent) / n};
  }
  /// How often `measured` doubles when the number of ranks goes from 8 to 64: 3 for O(N), 6 for O(N²), 0 for O(1).
  static double doublings(double at_8, double at_64) { return std::log2(at_64 / at_8); }
};

TEST_F(Growth, SequentialIsLinearInTimeAndAtTheRoot) {
  const Point small = measure(Algorithm::kSequential, 8), large = measure(Algorithm::kSequential, 64);
  EXPECT_NEAR(doublings(small.rounds, large.rounds), 3, 0.2);
  EXPECT_NEAR(doublings(small.bytes_per_rank, large.bytes_per_rank), 3, 0.2);
}

TEST_F(Growth, RingIsLinearInTimeAndConstantInBandwidth) {
  const Point small = measure(Algorithm::kRing, 8), large = measure(Algorithm::kRing, 64);
  EXPECT_NEAR(doublings(small.rounds, large.rounds), 3, 0.2);
  EXPECT_NEAR(doublings(small.bytes_per_rank, large.bytes_per_rank), 0, 0.2);
  EXPECT_LT(large.bytes_per_rank, 2);
}

TEST_F(Growth, ParallelIsConstantInTimeAndSquareInAll) {
  const Point small = measure(Algorithm::kParallel, 8), large = measure(Algorithm::kParallel, 64);
  EXPECT_EQ(small.rounds, large.rounds);
  EXPECT_NEAR(doublings(small.bytes_in_all, large.bytes_in_all), 6, 0.2);
}

TEST_F(Growth, RecursiveHalvingIsLogarithmicInTimeAndConstantInBandwidth) {
  double before = 0;
  for (const int p : {2, 4, 8, 16, 32, 64}) {
    const Point point = measure(Algorithm::kRecursiveHalving, p);
    EXPECT_EQ(point.rounds, before + 2) << "each doubling adds two rounds; " << p << " ranks";
    EXPECT_LT(point.bytes_per_rank, 2);
    before = point.rounds;
  }
}

TEST_F(Growth, ButterflyIsLogarithmicInTimeAndBandwidth) {
  for (const int p : {2, 4, 8, 16, 32, 64}) {
    const Point point = measure(Algorithm::kButterfly, p);
    EXPECT_EQ(point.rounds, std::log2(p));
    EXPECT_EQ(point.bytes_per_rank, std::log2(p));
  }
}

TEST_F(Growth, TreeIsLogarithmicInTimeAndConstantInBandwidth) {
  const Point small = measure(Algorithm::kTree, 8), large = measure(Algorithm::kTree, 64);
  EXPECT_LE(large.rounds - small.rounds, 2 * 3 + 1);  // 2 lg p, and lg p grows by 3
  EXPECT_LE(large.bytes_per_rank, 2);
}

TEST_F(Growth, OrderedIsConstantInRoundsAndBandwidth) {
  const Point small = measure(Algorithm::kOrdered, 8), large = measure(Algorithm::kOrdered, 64);
  EXPECT_EQ(small.rounds, large.rounds);
  EXPECT_LT(large.bytes_per_rank, 2);
}

// The other collectives, by messages.
class CollectiveTraffic : public AllReduceTraffic {
 protected:
  /// n bytes in all, n/p from each rank.
  const size_t block = elements(p) / static_cast<size_t>(p);
  const uint64_t block_bytes = n / static_cast<uint64_t>(p);
};
INSTANTIATE_TEST_SUITE_P(Ranks, CollectiveTraffic, testing::Values(2, 3, 4, 5, 7, 8, 13, 16, 31, 32),
                         testing::PrintToStringParamName());

TEST_P(CollectiveTraffic, Barrier) {
  expect_counts(count_by_messages(p, barrier_by_messages), [&](int) { return both_ways(ceil_lg(p), 0, ceil_lg(p)); });
}

TEST_P(CollectiveTraffic, Broadcast) {
  const int root = p / 2;
  const Counts counts = count_by_messages(p, [&](Messenger& messenger) {
    std::vector<float> data(elements(p), messenger.rank() == root ? 3.f : 0.f);
    broadcast_by_messages(messenger, data, root);
    EXPECT_EQ(data.back(), 3.f);
  });
  const Traffic total = sum(counts);
  EXPECT_EQ(total.messages_sent, others);
  EXPECT_EQ(total.bytes_sent, others * n);
  EXPECT_EQ(total.rounds, ceil_lg(p));
  for (int rank = 0; rank < p; ++rank) {
    EXPECT_EQ(counts[static_cast<size_t>(rank)].messages_received, rank == root ? 0u : 1u);
  }
  EXPECT_EQ(counts[static_cast<size_t>(root)].messages_sent, ceil_lg(p));
}

TEST_P(CollectiveTraffic, LongBroadcast) {
  if (p == 2) return;                                        // two ranks send the whole at once
  const size_t length = static_cast<size_t>(p) * 32 * 1024;  // of float: long enough to be scattered first
  const uint64_t long_bytes = length * sizeof(float), part = long_bytes / static_cast<uint64_t>(p);
  const Counts counts = count_by_messages(p, [&](Messenger& messenger) {
    std::vector<float> data(length, messenger.rank() == 0 ? 3.f : 0.f);
    broadcast_by_messages(messenger, data, 0);
    EXPECT_EQ(data.back(), 3.f);
  });
  expect_counts(counts, [&](int rank) -> Expected {
    if (rank == 0) return {2 * others, others, 2 * others * part, others * part, 2};
    return {others, others + 1, others * part, (others + 1) * part, 2};
  });
}

TEST_P(CollectiveTraffic, ScatterAndGather) {
  const int root = p - 1;
  const Counts scattered = count_by_messages(p, [&](Messenger& messenger) {
    std::vector<float> in(messenger.rank() == root ? elements(p) : 0, 3.f), out(block);
    scatter_by_messages(messenger, messenger.rank() == root ? ConstData(in) : ConstData(), out, root);
    EXPECT_EQ(out.back(), 3.f);
  });
  expect_counts(scattered, [&](int rank) -> Expected {
    return rank == root ? Expected{others, 0, others * block_bytes, 0, 1} : Expected{0, 1, 0, block_bytes, 1};
  });
  const Counts gathered = count_by_messages(p, [&](Messenger& messenger) {
    std::vector<float> in(block, 3.f), out(messenger.rank() == root ? elements(p) : 0);
    gather_by_messages(messenger, in, out, root);
    if (messenger.rank() == root) {
      EXPECT_EQ(out.front(), 3.f);
    }
  });
  expect_counts(gathered, [&](int rank) -> Expected {
    return rank == root ? Expected{0, others, 0, others * block_bytes, 1} : Expected{1, 0, block_bytes, 0, 1};
  });
}

TEST_P(CollectiveTraffic, AllGather) {
  const Counts counts = count_by_messages(p, [&](Messenger& messenger) {
    std::vector<float> in(block, static_cast<float>(messenger.rank())), out(elements(p));
    all_gather_by_messages(messenger, in, out, std::vector<size_t>(static_cast<size_t>(p), block));
    EXPECT_EQ(out.back(), static_cast<float>(p - 1));
  });
  expect_counts(counts, [&](int) { return both_ways(others, others * block_bytes, 1); });
}

TEST_P(CollectiveTraffic, ReduceScatter) {
  const Counts counts = count_by_messages(p, [&](Messenger& messenger) {
    std::vector<float> in(elements(p), 1.f), out(block);
    reduce_scatter_by_messages(messenger, in, out, ReduceOp::kSum);
    EXPECT_EQ(out.back(), static_cast<float>(p));
  });
  expect_counts(counts, [&](int) { return both_ways(others, others * block_bytes, 1); });
}

TEST_P(CollectiveTraffic, Reduce) {
  for (const int root : {0, p - 1}) {
    const Counts counts = count_by_messages(p, [&](Messenger& messenger) {
      std::vector<float> in(elements(p), 1.f), out(messenger.rank() == root ? elements(p) : 0);
      reduce_by_messages(messenger, in, out, ReduceOp::kSum, root);
      if (messenger.rank() == root) {
        EXPECT_EQ(out.back(), static_cast<float>(p));
      }
    });
    const Traffic total = sum(counts);
    // The tree ends at rank 0, which hands the sum on.
    EXPECT_EQ(total.bytes_sent, (others + (root == 0 ? 0 : 1)) * n);
    EXPECT_LE(total.rounds, ceil_lg(p) + (root == 0 ? 0 : 1));
  }
}

TEST_P(CollectiveTraffic, AllToAll) {
  const Counts counts = count_by_messages(p, [&](Messenger& messenger) {
    std::vector<float> in(elements(p), static_cast<float>(messenger.rank())), out(elements(p));
    const std::vector<size_t> each(static_cast<size_t>(p), block);
    all_to_all_by_messages(messenger, in, each, out, each);
    EXPECT_EQ(out.back(), static_cast<float>(p - 1));
  });
  expect_counts(counts, [&](int) { return both_ways(others, others * block_bytes, 1); });
}

}  // namespace
}  // namespace trireme
