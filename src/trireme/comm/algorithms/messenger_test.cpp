#include "trireme/comm/algorithms/messenger.h"

#include <gtest/gtest.h>

#include <thread>

#include "support/pipe_link.h"
#include "support/quiet_control.h"

namespace trireme {
namespace {

TEST(PartOf, CoversEverythingOnceAndEvenly) {
  for (const size_t count : {0, 1, 6, 7, 64, 1000}) {
    for (const int parts : {1, 2, 3, 7, 64}) {
      size_t next = 0;
      for (int i = 0; i < parts; ++i) {
        const Part part = part_of(count, parts, i);
        EXPECT_EQ(part.first, next);
        EXPECT_GE(part.count, count / static_cast<size_t>(parts));
        EXPECT_LE(part.count, count / static_cast<size_t>(parts) + 1);
        next += part.count;
      }
      EXPECT_EQ(next, count);
    }
  }
}

TEST(Arena, GivesAlignedMemoryThatDoesNotOverlapAndIsUsedAgain) {
  Arena arena;
  const Bytes a = arena.take(100), b = arena.take(0), c = arena.take(5000);
  EXPECT_EQ(a.size(), 100u);
  EXPECT_EQ(c.size(), 5000u);
  for (const Bytes bytes : {a, b, c}) EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes.data()) % 64, 0u);
  EXPECT_TRUE(a.data() + 100 <= c.data() || c.data() + 5000 <= a.data());
  arena.reset();
  EXPECT_EQ(arena.take(100).data(), a.data());
  EXPECT_EQ(arena.take(50).data(), b.data());
  EXPECT_EQ(arena.take(4000).data(), c.data());
}

/// Runs `body(messenger)` on every rank of a world of pipes.
template <typename Body>
void run(PipeWorld& world, Body body) {
  QuietControl control;
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < world.size(); ++rank) {
    threads.emplace_back([&, rank] {
      Arena arena;
      const Waiter waiter = control.waiter();
      Messenger messenger(world[rank], arena, waiter, FrameHeader());
      body(messenger);
    });
  }
}

TEST(Messenger, ExchangeIsOneRound) {
  PipeWorld world(2);
  std::vector<int> got(2);
  run(world, [&](Messenger& messenger) {
    const int rank = messenger.rank(), sent = 100 + rank;
    messenger.exchange(1 - rank, std::as_bytes(std::span(&sent, 1)), 1 - rank,
                       std::as_writable_bytes(std::span(&got[static_cast<size_t>(rank)], 1)));
  });
  EXPECT_EQ(got, (std::vector<int>{101, 100}));
  EXPECT_EQ(world[0].traffic().rounds, 1u);
  EXPECT_EQ(world[1].traffic().rounds, 1u);
}

TEST(Messenger, ABatchIsOneRound) {
  PipeWorld world(4);
  run(world, [&](Messenger& messenger) {
    std::vector<int> got(4);
    const int sent = messenger.rank();
    std::vector<Messenger::Ticket> tickets;
    for (int peer = 0; peer < 4; ++peer) {
      if (peer == messenger.rank()) continue;
      auto& place = got[static_cast<size_t>(peer)];
      tickets.push_back(messenger.start_recv(peer, std::as_writable_bytes(std::span(&place, 1))));
      tickets.push_back(messenger.start_send(peer, std::as_bytes(std::span(&sent, 1))));
    }
    messenger.wait(tickets);
    for (int peer = 0; peer < 4; ++peer) {
      if (peer != messenger.rank()) {
        EXPECT_EQ(got[static_cast<size_t>(peer)], peer);
      }
    }
  });
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(world[rank].traffic().rounds, 1u);
    EXPECT_EQ(world[rank].traffic().messages_sent, 3u);
  }
}

TEST(Messenger, CombinesBlockByBlock) {
  constexpr size_t kBlock = Messenger::kBlockBytes / sizeof(float);
  for (const size_t count : {size_t{0}, size_t{1}, kBlock, kBlock + 1, 3 * kBlock - 5}) {
    PipeWorld world(2);
    run(world, [&](Messenger& messenger) {
      const auto rank = static_cast<float>(messenger.rank());
      std::vector<float> out(count, 10 + rank), in(count);
      for (size_t i = 0; i < count; ++i) in[i] = static_cast<float>(i % 1000);
      const int peer = 1 - messenger.rank();
      messenger.exchange_combine(peer, out, peer, in, ReduceOp::kSum);
      const float received = 11 - rank;
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(in[i], static_cast<float>(i % 1000) + received) << i;
    });
    const size_t blocks = std::max<size_t>((count + kBlock - 1) / kBlock, 1);
    EXPECT_EQ(world[0].traffic().messages_sent, blocks);
    EXPECT_EQ(world[0].traffic().bytes_sent, count * sizeof(float));
  }
}

TEST(Messenger, TheTwoSidesOfACombineMayDifferInLength) {
  // What recursive halving does with an odd number of elements.
  PipeWorld world(2);
  constexpr size_t kShort = 100'000, kLong = 100'001;
  run(world, [&](Messenger& messenger) {
    const bool first = messenger.rank() == 0;
    std::vector<float> out(first ? kShort : kLong, 1.f), in(first ? kLong : kShort, 2.f);
    messenger.exchange_combine(1 - messenger.rank(), out, 1 - messenger.rank(), in, ReduceOp::kProduct);
    for (const float value : in) ASSERT_EQ(value, 2.f);
  });
}

TEST(Messenger, FinishWaitsForWhatWasStarted) {
  PipeWorld world(2, 1000);
  run(world, [&](Messenger& messenger) {
    std::vector<float> data(10'000, 1.f);
    if (messenger.rank() == 0) {
      const auto ticket = messenger.start_send(1, std::as_bytes(std::span(data)));
      EXPECT_FALSE(ticket->done);
      messenger.finish();
      EXPECT_TRUE(ticket->done);
    } else {
      messenger.recv(0, std::as_writable_bytes(std::span(data)));
    }
  });
  EXPECT_EQ(world[0].traffic().rounds, 0u);
}

}  // namespace
}  // namespace trireme
