// The frames of parameter servers: what is written can be read, and what nobody writes is refused.
#include "trireme/server/wire.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <random>

#include "trireme/base/crc32c.h"
#include "trireme/server/channel.h"
#include "trireme/server/dialer.h"
#include "trireme/server/server_test_util.h"
#include "trireme/server/wire_state.h"

namespace trireme::server {
namespace {

using namespace testing;
using Bytes = std::vector<std::byte>;

JoinRequest a_join() {
  JoinRequest join;
  join.event.type = Type::kJoin;
  join.event.worker = 3;
  join.event.incarnation = 77;
  join.event.leaves = {3, 4};
  join.event.uses_all = false;
  join.event.uses = {0, 1};
  join.event.host = "a host";
  join.settings.num_workers = 4;
  join.settings.rule.kind = OptimizerKind::kAdamW;
  join.settings.rule.beta1 = 0.95;
  join.num_servers = 2;
  join.keys = {{"a", 10, 0, true}, {"b", 20, 5, false}, {"c", 2, 0, true}};
  return join;
}

Event a_push() {
  Event push;
  push.worker = 3;
  push.sequence = 9;
  push.clock = 4;
  push.lr = 0.1;
  push.partials = {{{0, 4}, 40}, {{4, 5}, 40}};
  return push;
}

StateBegin a_state() {
  StateBegin state;
  state.settings = a_join().settings;
  state.keys = a_join().keys;
  state.workers.resize(4);
  state.workers[3] = {a_join().event, 1, 5, 6};
  state.commits = {{3, 0.1, 0.5, true}};
  return state;
}

TEST(Wire, WhatIsWrittenCanBeRead) {
  const JoinRequest join = decode_join(encode(a_join()));
  EXPECT_EQ(join.settings, a_join().settings);
  EXPECT_EQ(join.keys, a_join().keys);
  EXPECT_EQ(join.event.uses, a_join().event.uses);
  EXPECT_FALSE(join.event.uses_all);
  EXPECT_EQ(join.event.host, "a host");
  const Event push = decode_event(Type::kPush, encode(a_push()));
  EXPECT_EQ(push.sequence, 9u);
  EXPECT_EQ(push.lr, 0.1);
  EXPECT_EQ(push.partials[1].leaves, (LeafRange{4, 5}));
  const StateBegin state = decode_state_begin(encode(a_state()));
  EXPECT_EQ(state.workers[3].join.incarnation, 77u);
  EXPECT_EQ(state.workers[3].clock, 6u);
  EXPECT_EQ(state.commits[0].factor, 0.5);
}

/// Calls every decoder; none may do anything but return or throw ProtocolError.
void decode_all(const Bytes& bytes) {
  const auto attempt = [&](const auto& decode) {
    try {
      decode();
    } catch (const control::ProtocolError&) {
    }
  };
  for (const Type type : {Type::kJoin, Type::kPush, Type::kCommit}) attempt([&] { decode_event(type, bytes); });
  attempt([&] { decode_join(bytes); });
  attempt([&] { decode_joined(bytes); });
  attempt([&] { decode_query(Type::kPull, bytes); });
  attempt([&] { decode_answer(bytes); });
  attempt([&] { decode_text(bytes); });
  attempt([&] { decode_standing(bytes); });
  attempt([&] { decode_state_begin(bytes); });
  attempt([&] { decode_state_part(bytes); });
  attempt([&] { decode_state_round(bytes); });
  if (bytes.size() >= kHeaderBytes) attempt([&] { decode_wire_header(bytes); });
}

TEST(Wire, BytesThatNobodyWritesAreRefused) {
  std::mt19937_64 random(1);
  const std::vector<Bytes> good = {encode(a_join()), encode(a_push()), encode(a_state()), encode(Query{}),
                                   encode(StateRound{})};
  for (int i = 0; i < 20'000; ++i) {
    Bytes bytes;
    if (i % 2 == 0) {
      bytes.resize(random() % 300);
      for (std::byte& b : bytes) b = std::byte(random());
    } else {  // one that was good, damaged or cut
      bytes = good[random() % good.size()];
      for (uint64_t n = random() % 4; n > 0; --n) bytes[random() % bytes.size()] = std::byte(random());
      if (random() % 3 == 0) bytes.resize(random() % bytes.size());
    }
    decode_all(bytes);
  }
}

struct Pair {
  Pair() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    a = std::make_unique<Channel>(poller, Socket(fds[0]));
    b = std::make_unique<Channel>(poller, Socket(fds[1]));
  }
  control::Poller poller;
  std::unique_ptr<Channel> a, b;
};

TEST(Channel, CarriesFramesOfAllSizesByPriority) {
  Pair pair;
  std::mt19937_64 random(2);
  // The first is under way when the others come; of these, smaller priorities go first.
  const std::vector<float> big = random_values(500'000, 1);
  pair.a->send(Type::kPush, 0, {}, {Block::view(std::as_bytes(std::span(big)))}, 9);
  std::vector<std::pair<uint32_t, uint64_t>> order;
  for (uint64_t i = 1; i < 200; ++i) {
    const auto priority = static_cast<uint32_t>(random() % 5);
    const std::vector<float> data = random_values(random() % 3000, i);
    order.emplace_back(priority, i);
    pair.a->send(Type::kPush, i, Bytes(random() % 100'000, std::byte(i)),
                 {Block::copy_of(std::as_bytes(std::span(data))), Block::zeros(random() % 10)}, priority);
  }
  std::stable_sort(order.begin(), order.end(), [](auto& x, auto& y) { return x.first < y.first; });
  std::vector<WireFrame> frames;
  while (frames.size() < 200) {
    pair.a->flush();
    ASSERT_TRUE(pair.b->receive(frames)) << pair.b->reason();
  }
  EXPECT_EQ(frames[0].data.num_bytes(), big.size() * sizeof(float));
  EXPECT_TRUE(std::equal(big.begin(), big.end(), frames[0].data.floats()));
  for (size_t i = 1; i < 200; ++i) EXPECT_EQ(frames[i].request, order[i - 1].second);
  EXPECT_TRUE(pair.a->drained());
}

TEST(Channel, NoticesEveryDamagedBit) {
  const std::vector<float> data = random_values(8, 3);
  const Bytes meta = encode(a_push());
  Pair clean;
  clean.a->send(Type::kPush, 5, meta, {Block::view(std::as_bytes(std::span(data)))});
  Bytes wire(kHeaderBytes + meta.size() + data.size() * sizeof(float));
  ASSERT_EQ(::recv(clean.b->fd(), wire.data(), wire.size(), 0), static_cast<ssize_t>(wire.size()));
  for (size_t bit = 0; bit < wire.size() * 8; ++bit) {
    Pair pair;
    Bytes damaged = wire;
    damaged[bit / 8] ^= std::byte(1 << (bit % 8));
    ASSERT_EQ(::send(pair.a->fd(), damaged.data(), damaged.size(), 0), static_cast<ssize_t>(damaged.size()));
    pair.a.reset();
    std::vector<WireFrame> frames;
    EXPECT_FALSE(pair.b->receive(frames)) << bit;
    EXPECT_TRUE(frames.empty()) << bit;
  }
}

/// One who knows the token, and sends anything.
TEST(Server, SurvivesWhatWorkersWithATokenSend) {
  Group group;
  group.settings.num_workers = 2;
  group.settings.replicate = true;
  group.settings.piece_elements = 4096;
  group.keys = {{"w", 9000, 0, true}, {"rows", 40, 4, true}};
  group.start(2);
  std::mt19937_64 random(3);
  JoinRequest join;
  join.event.type = Type::kJoin;
  join.event.worker = 1;
  join.event.leaves = {1, 2};
  join.settings = group.settings;
  join.num_servers = 2;
  join.keys = group.keys;
  Worker honest(group.worker_options(0));
  honest.init("w", random_values(9000, 1)).wait();
  const int rounds = std::getenv("TRIREME_SANITIZED") != nullptr ? 40 : 150;
  for (int i = 0; i < rounds; ++i) {
    const Deadline deadline = Deadline::after(10s);
    const auto addresses = addresses_of(group.servers);
    const uint32_t target = static_cast<uint32_t>(random() % 2);
    Socket socket = connect_once(addresses[random() % 2], deadline);
    control::Hello hello;
    hello.purpose = control::Purpose::kData;
    hello.rank = 1;
    hello.target = target;
    hello.channel = random() % 3 == 0 ? kReplicaChannel : kWorkerChannel;
    control::shake_hands(socket, test_credentials(), hello, deadline);
    try {
      if (random() % 4 != 0) {
        join.event.incarnation = random();
        send_small_frame(socket, Type::kJoin, encode(join), deadline);
      }
      for (int n = 0; n < 20; ++n) {
        Event event = a_push();
        event.worker = random() % 8 == 0 ? static_cast<uint32_t>(random()) : 1;
        event.sequence = random() % 4 == 0 ? random() : static_cast<uint64_t>(n + 1);
        event.piece = random() % 4 == 0 ? static_cast<uint32_t>(random()) : static_cast<uint32_t>(random() % 6);
        event.clock = random() % 4 == 0 ? random() : random() % 3;
        event.num_rows = random() % 3 == 0 ? static_cast<uint32_t>(random()) : 0;
        event.slot = random() % 4 == 0 ? static_cast<uint32_t>(random() % 40) : kNoSlot;
        event.slot_bytes = static_cast<uint32_t>(random() % 100'000);
        if (random() % 2 == 0) event.partials = {{{1, 2}, 4 * 4096}};
        Bytes meta =
            random() % 3 == 0
                ? encode(Query{Type::kPull, 1, static_cast<uint32_t>(random() % 6), random() % 3, 0,
                               static_cast<Part>(random() % 3), static_cast<uint32_t>(random() % 5), random() % 2 == 0})
                : encode(event);
        if (random() % 4 == 0) meta[random() % meta.size()] = std::byte(random());
        const Bytes data(random() % 3 == 0 ? 4 * 4096 : random() % 64, std::byte(random()));
        WireHeader header;
        header.type = static_cast<Type>(1 + random() % 23);
        header.data_bytes = static_cast<uint32_t>(data.size());
        header.data_check = random() % 16 == 0 ? 1 : crc32c(data);
        header.request = static_cast<uint64_t>(n);
        send_all(socket, encode(header, meta), deadline);
        send_all(socket, meta, deadline);
        send_all(socket, data, deadline);
      }
    } catch (const SystemError&) {  // it has hung up
    }
  }
  // The shard may have other weights now: whoever has the token may push. It still answers.
  std::vector<float> weight(9000);
  honest.pull("w", weight).wait();
  EXPECT_GT(group.servers[0]->stats().num_primary + group.servers[1]->stats().num_primary, 0u);
}

}  // namespace
}  // namespace trireme::server
