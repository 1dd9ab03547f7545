// The control plane with all ranks in one process: joining, refusing, failing, asking, connecting, leaving.
#include "trireme/comm/control.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <future>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/comm/control_handshake.h"
#include "trireme/comm/control_silence.h"
#include "trireme/comm/control_test_util.h"
#include "trireme/comm/token.h"

namespace trireme {
namespace {

using namespace control::testing;
using namespace std::chrono_literals;
using testing::HasSubstr;

TEST(Join, AloneNeedsNoSocketAndNoThread) {
  LaunchEnvironment environment;
  const int next_fd = ::dup(0);
  ::close(next_fd);
  auto alone = ControlPlane::join(environment, member());
  const int same_fd = ::dup(0);
  ::close(same_fd);
  EXPECT_EQ(next_fd, same_fd);
  EXPECT_EQ(alone->members().size(), 1u);
  EXPECT_EQ(alone->failure(), nullptr);
  alone->progress().step = 7;
  EXPECT_EQ(alone->survey(Deadline::after(1s)).at(0).step, 7u);
  EXPECT_THROW(alone->connect(0, 0, Deadline::after(1s)), UsageError);
  EXPECT_FALSE(alone->accept(0, 0));
  alone->report({0, "broken"});
  ASSERT_NE(alone->failure(), nullptr);
  EXPECT_EQ(alone->failure()->message, "broken");
}

class JoinOf : public testing::TestWithParam<int> {};

TEST_P(JoinOf, GivesEveryRankTheSameTable) {
  const Job job(GetParam());
  Planes planes = join_all(job);
  for (int r = 0; r < GetParam(); ++r) {
    const auto& members = planes[size_t(r)]->members();
    ASSERT_EQ(members.size(), size_t(GetParam()));
    for (int m = 0; m < GetParam(); ++m) {
      EXPECT_EQ(members[size_t(m)].rank, m);
      EXPECT_EQ(members[size_t(m)].blob, "blob of " + std::to_string(m));
      EXPECT_EQ(members[size_t(m)].host_name, "test-host");
      EXPECT_EQ(members[size_t(m)].address, "127.0.0.1");
      EXPECT_NE(members[size_t(m)].port, 0);
    }
    EXPECT_EQ(planes[size_t(r)]->failure(), nullptr);
  }
  leave_all(planes);
}

INSTANTIATE_TEST_SUITE_P(Sizes, JoinOf, testing::Values(2, 5, 64));

TEST(Join, AgreesOnATokenByFile) {
  Job job(3);
  job.token.clear();
  Planes planes = join_all(job);
  leave_all(planes);
}

TEST(Join, AStaleTokenFileIsReadAgain) {
  Job job(2);
  const TokenFile right = TokenFile::publish(job.name, job.port);
  const TokenFile stale = TokenFile::publish(job.name, job.port);
  job.token = right.token();
  auto zero_joins = std::async(std::launch::async, [&] { return join(job, 0); });
  Job by_file = job;
  by_file.token.clear();
  auto one_joins = std::async(std::launch::async, [&] { return join(by_file, 1); });
  ASSERT_EQ(one_joins.wait_for(100ms), std::future_status::timeout);
  std::ofstream(right.path()) << right.token();
  Planes planes;
  planes.push_back(zero_joins.get());
  planes.push_back(one_joins.get());
  leave_all(planes);
}

TEST(Join, OnIpv6) {
  Job job(2);
  job.address = "::1";
  job.port = free_port("::1");
  Planes planes = join_all(job);
  EXPECT_EQ(planes[1]->members()[1].address, "::1");
  leave_all(planes);
}

TEST(Join, OnAnInheritedSocketTwice) {
  Socket listener = listen_on("127.0.0.1", 0, 16);
  Job job(2);
  job.port = local_address(listener).port;
  job.listen_fd = listener.fd();
  for (int generation = 0; generation < 2; ++generation) {
    Planes planes = join_all(job);
    leave_all(planes);
  }
}

TEST(Join, TakesTheNextPortWhenAnotherHoldsTheFirst) {
  const Socket other = listen_on("127.0.0.1", 0, 16);  // accepts, and never says a word
  Job job(2);
  job.more_ports = {job.port};
  job.port = local_address(other).port;
  Planes planes = join_all(job);
  leave_all(planes);
}

TEST(Join, PortInUseNamesTheAddressAndTheCure) {
  const Socket other = listen_on("127.0.0.1", 0, 16);
  Job job(2);
  job.port = local_address(other).port;
  const std::string address = "127.0.0.1:" + std::to_string(job.port);
  try {
    join(job, 0);
    FAIL();
  } catch (const SystemError& error) {
    EXPECT_EQ(error.error_number(), EADDRINUSE);
    EXPECT_THAT(error.what(), HasSubstr(address));
    EXPECT_THAT(error.what(), HasSubstr("Choose another port"));
  }
}

TEST(Join, RankOutsideTheWorld) {
  const Job job(2);
  EXPECT_THAT(error_of<UsageError>([&] { join(job, 2); }), HasSubstr("rank 2 is outside the world of 2 ranks"));
}

TEST(Join, BeyondLoopbackNeedsAToken) {
  Job job(2);
  job.token.clear();
  job.address = "192.0.2.1";
  EXPECT_THAT(error_of<UsageError>([&] { join(job, 1); }), HasSubstr("needs a token"));
}

TEST(Join, MissingRanksAreNamed) {
  const Job job(5);
  ControlOptions options = quick();
  options.join_timeout = 500ms;
  std::vector<std::future<std::string>> errors;
  for (int rank : {0, 2, 4}) {
    errors.push_back(
        std::async(std::launch::async, [&, rank] { return error_of<Error>([&] { join(job, rank, options); }); }));
  }
  for (auto& error : errors) EXPECT_THAT(error.get(), HasSubstr("2 of 5 ranks are missing: 1, 3"));
}

TEST(Join, MissingRankZeroIsNamed) {
  const Job job(2);
  ControlOptions options = quick();
  options.join_timeout = 200ms;
  const auto start = Clock::now();
  const std::string error = error_of<Error>([&] { join(job, 1, options); });
  EXPECT_THAT(error, HasSubstr("rank 0 did not answer at 127.0.0.1 port " + std::to_string(job.port)));
  EXPECT_LT(Clock::now() - start, 400ms);
}

TEST(Join, DeathWhileJoiningEndsTheJoinOfAll) {
  const Job job(3);
  auto zero = std::async(std::launch::async, [&] { return error_of<Error>([&] { join(job, 0); }); });
  {
    FakeRank one(job, 1);
    one.enrol();
    EXPECT_EQ(one.receive().type, control::FrameType::kWaiting);
  }
  EXPECT_THAT(zero.get(), HasSubstr("rank 1 (host fake-host, pid 4711) died"));
}

/// Rank 0 waits for a rank 1 that is refused for some reason.
class Refusals : public testing::Test {
 protected:
  Refusals() : job_(2) {
    zero_ = std::async(std::launch::async, [this] { return join(job_, 0); });
  }
  void TearDown() override {
    auto one = join(job_, 1);
    auto zero = zero_.get();
    std::jthread together([&] { one->leave(); });
    zero->leave();
  }

  Job job_;
  std::future<std::unique_ptr<ControlPlane>> zero_;
};

TEST_F(Refusals, WrongToken) {
  Job wrong = job_;
  wrong.token = "guess";
  const std::string error = error_of<UsageError>([&] { join(wrong, 1); });
  EXPECT_THAT(error, HasSubstr("refused rank 1: wrong token"));
  EXPECT_THAT(error, HasSubstr("TRIREME_TOKEN"));
}

TEST_F(Refusals, OtherJob) {
  Job other = job_;
  other.name = "another";
  EXPECT_THAT(error_of<UsageError>([&] { join(other, 1); }), HasSubstr("it belongs to another job"));
}

TEST_F(Refusals, SizeDiffers) {
  Job larger = job_;
  larger.size = 3;
  EXPECT_THAT(error_of<UsageError>([&] { join(larger, 2); }), HasSubstr("the world has 2 ranks, this process says 3"));
}

TEST_F(Refusals, RankOutside) {
  EXPECT_EQ(refusal_of(job_, [](control::Hello& hello) { hello.rank = 2; }).code, control::RefusalCode::kRankOutside);
}

TEST_F(Refusals, OtherLibraryVersion) {
  const auto refusal = refusal_of(job_, [](control::Hello& hello) { hello.library += 1; });
  EXPECT_EQ(refusal.code, control::RefusalCode::kOtherLibrary);
  EXPECT_THAT(error_of<UsageError>([&] { control::throw_refusal(refusal, "rank 0", 1); }),
              HasSubstr("it runs another version"));
}

TEST_F(Refusals, OtherProtocolVersion) {
  const Socket socket = connect_to(job_.address, job_.port, Deadline::after(5s));
  control::receive_frame(socket, control::kMaxHandshakeBytes, Deadline::after(5s));
  std::vector<std::byte> hello =
      control::FrameWriter(control::FrameType::kHello).raw(std::vector<std::byte>(200)).finish();  // an unknown layout
  hello[4] = std::byte{99};
  send_all(socket, hello, Deadline::after(5s));
  const auto answer = control::receive_frame(socket, control::kMaxHandshakeBytes, Deadline::after(5s));
  ASSERT_EQ(answer.type, control::FrameType::kRefusal);
  const auto refusal = control::decode_refusal(answer.payload);
  EXPECT_EQ(refusal.code, control::RefusalCode::kOtherProtocol);
  EXPECT_EQ(refusal.text, "it speaks protocol 1, this process 99");
}

TEST_F(Refusals, TenThousandWrongTokensAreNotLetIn) {
  Job wrong = job_;
  for (int i = 0; i < 10'000; ++i) {
    wrong.token = "guess " + std::to_string(i);
    ASSERT_EQ(refusal_of(wrong, [](control::Hello&) {}).code, control::RefusalCode::kWrongToken) << i;
  }
}

TEST(Refusal, RankTakenNamesTheFirst) {
  const Job job(3);
  auto zero = std::async(std::launch::async, [&] { return join(job, 0); });
  FakeRank first(job, 1);
  first.enrol();
  first.receive();
  const std::string error = error_of<UsageError>([&] { join(job, 1); });
  EXPECT_THAT(error, HasSubstr("the rank is already taken (by pid 4711 on host fake-host)"));
  auto two = join(job, 2);
  std::jthread leaving([&] { two->leave(); });
  first.send(control::encode(control::FrameType::kGoodbye));
  zero.get()->leave();
}

TEST(Failure, AReportReachesEverybody) {
  Planes planes = join_all(Job(5));
  const auto start = Clock::now();
  planes[3]->report({2, "rank 3 got nonsense from rank 2"});
  ASSERT_NE(planes[3]->failure(), nullptr);
  for (auto& plane : planes) {
    ASSERT_TRUE(eventually([&] { return plane->failure() != nullptr; }));
    EXPECT_EQ(plane->failure()->culprit, 2);
    EXPECT_EQ(plane->failure()->message, "rank 3 got nonsense from rank 2");
  }
  EXPECT_LT(Clock::now() - start, 1s);
  planes[1]->report({4, "too late"});
  EXPECT_EQ(planes[1]->failure()->culprit, 2);
  leave_all(planes);
}

TEST(Failure, ADeadRankIsNamedToAll) {
  const Job job(3);
  auto zero_joins = std::async(std::launch::async, [&] { return join(job, 0); });
  auto one_joins = std::async(std::launch::async, [&] { return join(job, 1); });
  auto dying = std::make_unique<FakeRank>(job, 2);
  dying->enrol();
  auto zero = zero_joins.get();
  auto one = one_joins.get();
  control::Beat beat;
  beat.step = 12;
  beat.sequence = 345;
  dying->send(control::encode(beat));
  const auto start = Clock::now();
  dying.reset();
  for (ControlPlane* plane : {zero.get(), one.get()}) {
    ASSERT_TRUE(eventually([&] { return plane->failure() != nullptr; }));
    EXPECT_EQ(plane->failure()->culprit, 2);
    EXPECT_EQ(plane->failure()->message,
              "rank 2 (host fake-host, pid 4711) died: its connection closed; last heard of at step 12, sequence 345");
  }
  EXPECT_LT(Clock::now() - start, 1s);
}

TEST(Failure, ASilentRankIsNamedToAll) {
  const Job job(2);
  ControlOptions options = quick();
  options.heartbeat_interval = 20ms;
  options.silence_limit = 300ms;
  auto zero_joins = std::async(std::launch::async, [&] { return join(job, 0, options); });
  FakeRank silent(job, 1);
  silent.enrol();
  auto zero = zero_joins.get();
  const auto start = Clock::now();
  ASSERT_TRUE(eventually([&] { return zero->failure() != nullptr; }));
  EXPECT_GT(Clock::now() - start, 250ms);
  EXPECT_LT(Clock::now() - start, 1s);
  EXPECT_EQ(zero->failure()->culprit, 1);
  EXPECT_THAT(zero->failure()->message, HasSubstr("rank 1 (host fake-host, pid 4711) stopped answering 0.3 s ago"));
  // Should it wake up, it learns what it was held for.
  control::Frame frame = silent.receive();
  while (frame.type != control::FrameType::kFailure) frame = silent.receive();
  EXPECT_EQ(control::decode_failure(frame.payload).culprit, 1);
}

TEST(Failure, ASilentOrDeadCoordinatorIsNamed) {
  const Job job(2);
  ControlOptions options = quick();
  options.heartbeat_interval = 20ms;
  options.silence_limit = 200ms;
  for (const bool dies : {true, false}) {
    FakeCoordinator fake(job);
    auto one_joins = std::async(std::launch::async, [&] { return join(job, 1, options); });
    fake.serve_one();
    auto one = one_joins.get();
    if (dies) fake.close();
    ASSERT_TRUE(eventually([&] { return one->failure() != nullptr; }));
    EXPECT_EQ(one->failure()->culprit, 0);
    EXPECT_THAT(one->failure()->message,
                HasSubstr(dies ? "rank 0 (host fake-host, pid 4711) died: its connection closed"
                               : "rank 0 (host fake-host, pid 4711) stopped answering 0.2 s ago"));
    EXPECT_THROW(one->survey(Deadline::after(100ms)), Error);
    const auto start = Clock::now();
    one->leave();
    EXPECT_LT(Clock::now() - start, 500ms);
  }
}

TEST(Failure, AnImpostorOfTheCoordinatorIsNotTrusted) {
  const Job job(2);
  Job wrong = job;
  wrong.token = "guess";
  FakeCoordinator fake(wrong);
  ControlOptions options = quick();
  options.join_timeout = 300ms;
  auto error = std::async(std::launch::async, [&] { return error_of<Error>([&] { join(job, 1, options); }); });
  EXPECT_THROW(fake.serve_one(), Error);
  EXPECT_THAT(error.get(), HasSubstr("does not know the token"));
}

TEST(Silence, TimeAwayDoesNotCount) {
  const Clock::time_point start{};
  control::AbsenceDetector absence(200ms, 5s, start);
  EXPECT_FALSE(absence.was_away(start + 200ms));
  EXPECT_FALSE(absence.was_away(start + 1300ms));
  EXPECT_TRUE(absence.was_away(start + 2600ms));
  EXPECT_FALSE(absence.was_away(start + 2800ms));
}

TEST(Survey, TellsWhatEveryRankIsDoing) {
  ControlOptions options = quick();
  options.heartbeat_interval = 10ms;
  Planes planes = join_all(Job(3), options);
  for (uint64_t r = 0; r < 3; ++r) {
    Progress& progress = planes[r]->progress();
    progress.group = 100 + r;
    progress.sequence = 200 + r;
    progress.operation = uint32_t(300 + r);
    progress.step = 400 + r;
  }
  for (auto& plane : planes) {
    ASSERT_TRUE(eventually([&] {
      const auto ranks = plane->survey(Deadline::after(1s));
      for (uint64_t r = 0; r < 3; ++r) {
        if (ranks.at(r).rank != int(r) || ranks[r].group != 100 + r || ranks[r].sequence != 200 + r ||
            ranks[r].operation != 300 + r || ranks[r].step != 400 + r || ranks[r].seconds_since_heartbeat > 0.5) {
          return false;
        }
      }
      return true;
    }));
  }
  leave_all(planes);
}

TEST(Connect, CarriesDataBothWays) {
  Planes planes = join_all(Job(3));
  for (int from = 0; from < 3; ++from) {
    for (int to = 0; to < 3; ++to) {
      const uint64_t channel = uint64_t(10 * from + to) << 32;
      Socket out = planes[size_t(from)]->connect(to, channel, Deadline::after(5s));
      EXPECT_FALSE(planes[size_t(to)]->accept(from, channel + 1));
      std::optional<Socket> in;
      ASSERT_TRUE(eventually([&] { return (in = planes[size_t(to)]->accept(from, channel)).has_value(); }));
      EXPECT_FALSE(planes[size_t(to)]->accept(from, channel));
      exchange(out, *in, 1 << 20);
      exchange(*in, out, 1 << 20);
    }
  }
  leave_all(planes);
}

TEST(Connect, RefusesASecondConnectionOfAChannel) {
  Planes planes = join_all(Job(2));
  Socket first = planes[1]->connect(0, 7, Deadline::after(5s));
  EXPECT_THAT(error_of<Error>([&] { planes[1]->connect(0, 7, Deadline::after(5s)); }),
              HasSubstr("it already has a connection of that channel"));
  // One that was given up makes room.
  first = Socket();
  Socket second = planes[1]->connect(0, 7, Deadline::after(5s));
  std::optional<Socket> taken;
  ASSERT_TRUE(eventually([&] { return (taken = planes[0]->accept(1, 7)).has_value(); }));
  exchange(second, *taken, 1000);
  EXPECT_THROW(planes[1]->connect(2, 0, Deadline::after(1s)), UsageError);
  leave_all(planes);
}

TEST(Connect, ToADeadRankEndsAtTheDeadlineOrWithTheFailure) {
  const Job job(2);
  auto zero_joins = std::async(std::launch::async, [&] { return join(job, 0); });
  auto one = std::make_unique<FakeRank>(job, 1);
  one->enrol();
  auto zero = zero_joins.get();
  const auto start = Clock::now();
  EXPECT_THAT(error_of<SystemError>([&] { zero->connect(1, 0, Deadline::after(100ms)); }),
              HasSubstr("connect rank 0 to rank 1 (host fake-host, pid 4711) at 127.0.0.1:1"));
  EXPECT_LT(Clock::now() - start, 500ms);
  one.reset();
  EXPECT_THAT(error_of<Error>([&] { zero->connect(1, 0, Deadline::after(30s)); }), HasSubstr("died"));
  EXPECT_LT(Clock::now() - start, 3s);
}

TEST(Connect, StrangersDoNotReachATransport) {
  Planes planes = join_all(Job(2));
  const Member& one = planes[0]->members()[1];
  const Socket stranger = connect_to(one.address, one.port, Deadline::after(5s));
  control::receive_frame(stranger, control::kMaxHandshakeBytes, Deadline::after(5s));
  send_all(stranger, std::vector<std::byte>(100, std::byte{1}), Deadline::after(5s));
  std::byte byte;
  EXPECT_THROW(recv_all(stranger, std::span(&byte, 1), Deadline::after(5s)), SystemError);
  EXPECT_FALSE(planes[1]->accept(0, 0));
  leave_all(planes);
}

TEST(Leave, IsNoFailure) {
  Planes planes = join_all(Job(3));
  planes[1]->leave();
  planes[1]->leave();
  planes[1].reset();
  EXPECT_FALSE(eventually([&] { return planes[0]->failure() || planes[2]->failure(); }, 100ms));
  planes[2].reset();
  const auto start = Clock::now();
  planes[0].reset();
  EXPECT_LT(Clock::now() - start, 500ms);
}

TEST(Leave, TheCoordinatorOutlivesRankZero) {
  Planes planes = join_all(Job(3));
  std::jthread zero([&] { planes[0]->leave(); });
  EXPECT_FALSE(eventually([&] { return planes[1]->failure() || planes[2]->failure(); }, 100ms));
  EXPECT_EQ(planes[1]->survey(Deadline::after(1s)).size(), 3u);
  planes[1]->leave();
  planes[2]->leave();
  EXPECT_EQ(planes[1]->failure(), nullptr);
  EXPECT_EQ(planes[2]->failure(), nullptr);
}

TEST(Leave, AfterAFailureNobodyIsWaitedFor) {
  Planes planes = join_all(Job(3));
  planes[1]->report({1, "broken"});
  const auto start = Clock::now();
  ASSERT_TRUE(eventually([&] { return planes[0]->failure() != nullptr; }));
  planes[0]->leave();
  EXPECT_LT(Clock::now() - start, 1s);
  for (auto& plane : planes) {
    ASSERT_TRUE(eventually([&] { return plane->failure() != nullptr; }));
    EXPECT_EQ(plane->failure()->message, "broken");
  }
}

TEST(Leave, TheJobCanBeJoinedAgainAtOnce) {
  const Job job(3);
  for (int generation = 0; generation < 20; ++generation) {
    std::vector<std::jthread> ranks;
    for (int r = 0; r < 3; ++r) {
      ranks.emplace_back([&job, r] { join(job, r)->leave(); });
    }
  }
}

}  // namespace
}  // namespace trireme
