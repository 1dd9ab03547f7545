#include "trireme/comm/transport/endpoint.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <thread>

#include "support/pipe_link.h"
#include "support/quiet_control.h"

namespace trireme {
namespace {

using namespace std::chrono_literals;

FrameHeader header_of(uint32_t tag = 0, uint16_t lane = 0) {
  FrameHeader header;
  header.tag = tag;
  header.lane = lane;
  header.digest.kind = OperationKind::kSend;
  return header;
}

std::vector<std::byte> pattern(size_t count, int seed) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i)
    bytes[i] = static_cast<std::byte>(i * 7 + static_cast<size_t>(seed) * 31 + i / 251);
  return bytes;
}

class EndpointTest : public testing::Test {
 protected:
  void wait(int rank, std::vector<Endpoint::Ticket> tickets) { world[rank].wait(tickets, control.waiter()); }

  QuietControl control;
  PipeWorld world{2};
};

TEST_F(EndpointTest, MovesOneMessage) {
  const auto sent = pattern(1000, 1);
  std::vector<std::byte> got(1000);
  const auto receive = world[1].start_recv(0, header_of(), got);
  const auto send = world[0].start_send(1, header_of(), sent);
  wait(0, {send});
  wait(1, {receive});
  EXPECT_EQ(got, sent);
  EXPECT_TRUE(world[0].idle());
  EXPECT_FALSE(world[1].progress());
  EXPECT_TRUE(world[1].idle());
}

TEST_F(EndpointTest, EmptyMessagesArriveToo) {
  const auto send = world[0].start_send(1, header_of(), {});
  const auto receive = world[1].start_recv(0, header_of(), {});
  wait(1, {receive});
  EXPECT_EQ(world[1].traffic().messages_received, 1u);
  EXPECT_EQ(world[1].traffic().bytes_received, 0u);
}

TEST_F(EndpointTest, MatchesOneTagInOrder) {
  const auto first = pattern(100, 1), second = pattern(100, 2);
  world[0].start_send(1, header_of(5), first);
  world[0].start_send(1, header_of(5), second);
  std::vector<std::byte> a(100), b(100);
  wait(1, {world[1].start_recv(0, header_of(5), a), world[1].start_recv(0, header_of(5), b)});
  EXPECT_EQ(a, first);
  EXPECT_EQ(b, second);
}

TEST_F(EndpointTest, KeepsAsideWhatNobodyHasAskedFor) {
  const auto first = pattern(3000, 1), second = pattern(10, 2), third = pattern(20, 3);
  world[0].start_send(1, header_of(1), first);
  world[0].start_send(1, header_of(1), third);
  world[0].start_send(1, header_of(2), second);
  std::vector<std::byte> a(3000), b(10), c(20);
  wait(1, {world[1].start_recv(0, header_of(2), b)});
  EXPECT_EQ(b, second);
  // Both that were passed over are here now; one is asked for after the other.
  const auto receive_first = world[1].start_recv(0, header_of(1), a);
  EXPECT_TRUE(receive_first->done);
  wait(1, {receive_first, world[1].start_recv(0, header_of(1), c)});
  EXPECT_EQ(a, first);
  EXPECT_EQ(c, third);
  EXPECT_EQ(world[1].traffic().messages_received, 3u);
}

TEST_F(EndpointTest, LanesAreApart) {
  const auto first = pattern(10, 1), second = pattern(10, 2);
  world[0].start_send(1, header_of(0, 1), first);
  world[0].start_send(1, header_of(0, 2), second);
  std::vector<std::byte> a(10), b(10);
  wait(1, {world[1].start_recv(0, header_of(0, 2), b), world[1].start_recv(0, header_of(0, 1), a)});
  EXPECT_EQ(a, first);
  EXPECT_EQ(b, second);
}

TEST(Endpoint, TakesOverAMessageThatIsHalfKeptAside) {
  QuietControl control;
  PipeWorld world(2, 500);  // less than the first message: it is half here when it is asked for
  const auto first = pattern(4000, 1), second = pattern(10, 2);
  world[0].start_send(1, header_of(1), first);
  world[0].start_send(1, header_of(2), second);
  std::vector<std::byte> a(4000), b(10);
  const auto receive_second = world[1].start_recv(0, header_of(2), b);
  for (int i = 0; i < 3; ++i) {
    world[1].progress();
    world[0].progress();
  }
  EXPECT_FALSE(receive_second->done);
  const auto receive_first = world[1].start_recv(0, header_of(1), a);
  const Endpoint::Ticket both[] = {receive_first, receive_second};
  std::thread sender([&] {
    while (!receive_second->done) world[0].progress();
  });
  world[1].wait(both, control.waiter());
  sender.join();
  EXPECT_EQ(a, first);
  EXPECT_EQ(b, second);
}

TEST(Endpoint, LongMessagesPassThroughSmallPipesBothWaysAtOnce) {
  QuietControl control;
  PipeWorld world(2, 100);
  const std::vector<std::byte> sent[] = {pattern(50'000, 1), pattern(50'000, 2)};
  std::vector<std::byte> got[2] = {std::vector<std::byte>(50'000), std::vector<std::byte>(50'000)};
  const auto exchange = [&](int rank) {
    const int peer = 1 - rank;
    const Endpoint::Ticket tickets[] = {world[rank].start_send(peer, header_of(), sent[rank]),
                                        world[rank].start_recv(peer, header_of(), got[rank])};
    world[rank].wait(tickets, control.waiter());
  };
  std::thread other([&] { exchange(1); });
  exchange(0);
  other.join();
  EXPECT_EQ(got[0], sent[1]);
  EXPECT_EQ(got[1], sent[0]);
}

/// Like MPI: a write or read is one message, handed over at the first call and done some calls later.
class MessageLink : public Link {
 public:
  struct Wire {
    std::mutex mutex;
    std::deque<std::vector<std::byte>> messages;
  };
  MessageLink(std::shared_ptr<Wire> out, std::shared_ptr<Wire> in, int patience)
      : out_(std::move(out)), in_(std::move(in)), patience_(patience) {}

  size_t write_some(ConstBytes data) override {
    if (write_calls_ == 0) {
      std::lock_guard lock(out_->mutex);
      out_->messages.emplace_back(data.begin(), data.end());
      writing_ = data.size();
    }
    if (++write_calls_ <= patience_) return 0;
    write_calls_ = 0;
    return writing_;
  }
  size_t read_some(Bytes data) override {
    std::lock_guard lock(in_->mutex);
    if (in_->messages.empty() || ++read_calls_ <= patience_) return 0;
    read_calls_ = 0;
    if (in_->messages.front().size() != data.size()) throw LinkBroken{-1, "the message has another length"};
    std::copy(in_->messages.front().begin(), in_->messages.front().end(), data.begin());
    in_->messages.pop_front();
    return data.size();
  }

 private:
  std::shared_ptr<Wire> out_, in_;
  int patience_, write_calls_ = 0, read_calls_ = 0;
  size_t writing_ = 0;
};

TEST(Endpoint, LinksThatKeepMessagesSeeEachHeaderAndPayloadOnce) {
  for (const int patience : {0, 1, 2, 5}) {
    QuietControl control;
    auto there = std::make_shared<MessageLink::Wire>(), back = std::make_shared<MessageLink::Wire>();
    Endpoint a(
        0, 2, [&](int) { return std::make_unique<MessageLink>(there, back, patience); }, nullptr);
    Endpoint b(
        1, 2, [&](int) { return std::make_unique<MessageLink>(back, there, patience); }, nullptr);
    std::vector<std::vector<std::byte>> sent, got;
    std::vector<Endpoint::Ticket> sends, receives;
    for (const size_t size : {size_t{100}, size_t{0}, size_t{1}, size_t{5000}, size_t{64}}) {
      sent.push_back(pattern(size, static_cast<int>(size)));
      got.emplace_back(size);
    }
    for (const auto& message : sent) sends.push_back(a.start_send(1, header_of(), message));
    for (auto& message : got) receives.push_back(b.start_recv(0, header_of(), message));
    const Deadline deadline = Deadline::after(10s);
    while (!receives.back()->done && !deadline.expired()) {
      a.progress();
      b.progress();
    }
    a.wait(sends, control.waiter());
    b.wait(receives, control.waiter());
    EXPECT_EQ(got, sent);
    EXPECT_TRUE(there->messages.empty());
  }
}

TEST_F(EndpointTest, ManyThreadsMayWaitAtOnce) {
  constexpr int kThreads = 4, kMessages = 50;
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < kThreads; ++t) {
    for (const int rank : {0, 1}) {
      threads.emplace_back([&, t, rank] {
        for (int i = 0; i < kMessages; ++i) {
          const auto header = header_of(static_cast<uint32_t>(t));
          const auto sent = pattern(777, t * 1000 + i);
          std::vector<std::byte> got(777);
          const Endpoint::Ticket tickets[] = {world[rank].start_recv(1 - rank, header, got),
                                              world[rank].start_send(1 - rank, header, sent)};
          world[rank].wait(tickets, control.waiter());
          if (got != sent) ++wrong;
        }
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(EndpointTest, SpeaksToItself) {
  const auto sent = pattern(5000, 1);
  std::vector<std::byte> got(5000);
  wait(0, {world[0].start_send(0, header_of(), sent), world[0].start_recv(0, header_of(), got)});
  EXPECT_EQ(got, sent);
}

TEST_F(EndpointTest, NoticesAnotherLength) {
  const auto sent = pattern(10, 1);
  world[0].start_send(1, header_of(), sent);
  std::vector<std::byte> got(11);
  const auto receive = world[1].start_recv(0, header_of(), got);
  EXPECT_THROW(wait(1, {receive}), OperationMismatch);
}

TEST_F(EndpointTest, NoticesAnotherOperation) {
  FrameHeader theirs = header_of();
  theirs.fingerprint = 17;
  theirs.digest.kind = OperationKind::kBarrier;
  world[0].start_send(1, theirs, {});
  const auto receive = world[1].start_recv(0, header_of(), {});
  try {
    wait(1, {receive});
    FAIL();
  } catch (const OperationMismatch& mismatch) {
    EXPECT_EQ(mismatch.peer, 0);
    EXPECT_EQ(mismatch.theirs.kind, OperationKind::kBarrier);
  }
}

TEST_F(EndpointTest, NoticesAnotherOperationThatWasKeptAside) {
  FrameHeader theirs = header_of(1);
  theirs.fingerprint = 17;
  world[0].start_send(1, theirs, {});
  world[0].start_send(1, header_of(2), {});
  wait(1, {world[1].start_recv(0, header_of(2), {})});
  EXPECT_THROW(world[1].start_recv(0, header_of(1), {}), OperationMismatch);
}

TEST_F(EndpointTest, RefusesAnotherGeneration) {
  FrameHeader zombie = header_of();
  zombie.generation = 1;
  world[0].start_send(1, zombie, {});
  const auto receive = world[1].start_recv(0, header_of(), {});
  EXPECT_THROW(wait(1, {receive}), OperationMismatch);
}

TEST_F(EndpointTest, RefusesWhatIsNoFrame) {
  const std::string noise(200, 'x');
  const auto bytes = std::as_bytes(std::span(noise));
  world.pipe(0, 1).bytes.assign(bytes.begin(), bytes.end());
  const auto receive = world[1].start_recv(0, header_of(), {});
  try {
    wait(1, {receive});
    FAIL();
  } catch (const LinkBroken& broken) {
    EXPECT_EQ(broken.peer, 0);
    EXPECT_NE(broken.reason.find("a frame of another kind"), std::string::npos) << broken.reason;
  }
}

TEST_F(EndpointTest, RefusesALengthBeyondTheCapBeforeItTakesMemory) {
  FrameHeader header = header_of(7);
  header.length = FrameHeader::kMaxLength + 1;
  const auto bytes = std::as_bytes(std::span(&header, 1));
  world.pipe(0, 1).bytes.assign(bytes.begin(), bytes.end());
  const auto receive = world[1].start_recv(0, header_of(), {});
  EXPECT_THROW(wait(1, {receive}), LinkBroken);
}

TEST_F(EndpointTest, PassesOnABrokenLink) {
  world.pipe(0, 1).broken = true;
  const auto receive = world[1].start_recv(0, header_of(), {});
  EXPECT_THROW(wait(1, {receive}), LinkBroken);
  EXPECT_THROW(world[0].start_send(1, header_of(), {}), LinkBroken);
}

TEST_F(EndpointTest, GivesUpInTime) {
  const auto receive = world[1].start_recv(0, header_of(), {});
  const Endpoint::Ticket tickets[] = {receive};
  const auto start = Clock::now();
  EXPECT_THROW(world[1].wait(tickets, control.waiter(30ms)), WaitTimedOut);
  EXPECT_GE(Clock::now() - start, 30ms);
  EXPECT_LT(Clock::now() - start, 5s);
}

TEST_F(EndpointTest, GivesUpWhenTheJobHasFailedOrTheGroupIsClosed) {
  const Endpoint::Ticket tickets[] = {world[1].start_recv(0, header_of(), {})};
  control.cancelled = true;
  EXPECT_THROW(world[1].wait(tickets, control.waiter()), WaitCancelled);
  control.report({0, "rank 0 died"});
  EXPECT_THROW(world[1].wait(tickets, control.waiter()), JobFailed);
}

TEST_F(EndpointTest, AbandonedRequestsNeverTouchTheirMemory) {
  std::vector<std::byte> got(100, std::byte{9});
  const auto receive = world[1].start_recv(0, header_of(), got);
  world[1].abandon();
  EXPECT_TRUE(world[1].idle());
  const auto sent = pattern(100, 1);
  world[0].start_send(1, header_of(), sent);
  world[1].progress();
  EXPECT_FALSE(receive->done);
  EXPECT_EQ(got, std::vector<std::byte>(100, std::byte{9}));
}

TEST_F(EndpointTest, CountsPayloadAndRounds) {
  const auto sent = pattern(100, 1);
  std::vector<std::byte> got(100);
  // 0 → 1, then 1 → 0: a chain of two messages.
  const Endpoint::Ticket there[] = {world[0].start_send(1, header_of(), sent)};
  world[0].wait(there, control.waiter());
  world[0].end_round(there);
  const Endpoint::Ticket arrived[] = {world[1].start_recv(0, header_of(), got)};
  world[1].wait(arrived, control.waiter());
  world[1].end_round(arrived);
  EXPECT_EQ(world[1].traffic().rounds, 1u);
  const Endpoint::Ticket back[] = {world[1].start_send(0, header_of(), got)};
  world[1].wait(back, control.waiter());
  world[1].end_round(back);
  const Endpoint::Ticket returned[] = {world[0].start_recv(1, header_of(), got)};
  world[0].wait(returned, control.waiter());
  world[0].end_round(returned);
  const Traffic traffic = world[0].traffic();
  EXPECT_EQ(traffic.messages_sent, 1u);
  EXPECT_EQ(traffic.messages_received, 1u);
  EXPECT_EQ(traffic.bytes_sent, 100u);
  EXPECT_EQ(traffic.bytes_received, 100u);
  EXPECT_EQ(traffic.rounds, 2u);
}

}  // namespace
}  // namespace trireme
