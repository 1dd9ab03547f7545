// Joining a job, with all ranks in one process: who gets in, who is refused, and what each is told.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <future>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/comm/control/control.h"
#include "trireme/comm/control/control_handshake.h"
#include "trireme/comm/control/control_test_util.h"
#include "trireme/comm/control/token.h"

namespace trireme {
namespace {

using namespace control::testing;
using namespace std::chrono_literals;

TEST(ControlJoin, AloneNeedsNoSocketAndNoThread) {
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

class ControlJoinOf : public testing::TestWithParam<int> {};

TEST_P(ControlJoinOf, GivesEveryRankTheSameTable) {
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

INSTANTIATE_TEST_SUITE_P(Sizes, ControlJoinOf, testing::Values(2, 5, 64));

TEST(ControlJoin, AgreesOnATokenByFile) {
  Job job(3);
  job.token.clear();
  Planes planes = join_all(job);
  leave_all(planes);
}

TEST(ControlJoin, AStaleTokenFileIsReadAgain) {
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

TEST(ControlJoin, OnIpv6) {
  Job job(2);
  job.address = "::1";
  job.port = free_port("::1");
  Planes planes = join_all(job);
  EXPECT_EQ(planes[1]->members()[1].address, "::1");
  leave_all(planes);
}

TEST(ControlJoin, OnAnInheritedSocketTwice) {
  Socket listener = listen_on("127.0.0.1", 0, 16);
  Job job(2);
  job.port = local_address(listener).port;
  job.listen_fd = listener.fd();
  for (int generation = 0; generation < 2; ++generation) {
    Planes planes = join_all(job);
    leave_all(planes);
  }
}

TEST(ControlJoin, TakesTheNextPortWhenAnotherHoldsTheFirst) {
  const Socket other = listen_on("127.0.0.1", 0, 16);  // accepts, and never says a word
  Job job(2);
  job.more_ports = {job.port};
  job.port = local_address(other).port;
  Planes planes = join_all(job);
  leave_all(planes);
}

TEST(ControlJoin, PortInUseNamesTheAddressAndTheCure) {
  const Socket other = listen_on("127.0.0.1", 0, 16);
  Job job(2);
  job.port = local_address(other).port;
  const std::string address = "127.0.0.1:" + std::to_string(job.port);
  try {
    join(job, 0);
    FAIL();
  } catch (const SystemError& error) {
    EXPECT_EQ(error.error_number(), EADDRINUSE);
    EXPECT_TRUE(contains(error.what(), address));
    EXPECT_TRUE(contains(error.what(), "Choose another port"));
  }
}

TEST(ControlJoin, RankOutsideTheWorld) {
  const Job job(2);
  EXPECT_TRUE(contains(error_of<UsageError>([&] { join(job, 2); }), "rank 2 is outside the world of 2 ranks"));
}

TEST(ControlJoin, BeyondLoopbackNeedsAToken) {
  Job job(2);
  job.token.clear();
  job.address = "192.0.2.1";
  EXPECT_TRUE(contains(error_of<UsageError>([&] { join(job, 1); }), "needs a token"));
}

TEST(ControlJoin, MissingRanksAreNamed) {
  const Job job(5);
  ControlOptions options = quick();
  options.join_timeout = 500ms;
  std::vector<std::future<std::string>> errors;
  for (int rank : {0, 2, 4}) {
    errors.push_back(
        std::async(std::launch::async, [&, rank] { return error_of<Error>([&] { join(job, rank, options); }); }));
  }
  for (auto& error : errors) EXPECT_TRUE(contains(error.get(), "2 of 5 ranks are missing: 1, 3"));
}

TEST(ControlJoin, MissingRankZeroIsNamed) {
  const Job job(2);
  ControlOptions options = quick();
  options.join_timeout = 200ms;
  const auto start = Clock::now();
  const std::string error = error_of<Error>([&] { join(job, 1, options); });
  EXPECT_TRUE(contains(error, "rank 0 did not answer at 127.0.0.1 port " + std::to_string(job.port)));
  EXPECT_LT(Clock::now() - start, 400ms);
}

TEST(ControlJoin, DeathWhileJoiningEndsTheJoinOfAll) {
  const Job job(3);
  auto zero = std::async(std::launch::async, [&] { return error_of<Error>([&] { join(job, 0); }); });
  {
    FakeRank one(job, 1);
    one.enrol();
    EXPECT_EQ(one.receive().type, control::FrameType::kWaiting);
  }
  EXPECT_TRUE(contains(zero.get(), "rank 1 (host fake-host, pid 4711) died"));
}

/// Rank 0 waits for a rank 1 that is refused for some reason.
class ControlRefusals : public testing::Test {
 protected:
  ControlRefusals() : job_(2) {
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

TEST_F(ControlRefusals, WrongToken) {
  Job wrong = job_;
  wrong.token = "guess";
  const std::string error = error_of<UsageError>([&] { join(wrong, 1); });
  EXPECT_TRUE(contains(error, "refused rank 1: wrong token"));
  EXPECT_TRUE(contains(error, "TRIREME_TOKEN"));
}

TEST_F(ControlRefusals, OtherJob) {
  Job other = job_;
  other.name = "another";
  EXPECT_TRUE(contains(error_of<UsageError>([&] { join(other, 1); }), "it belongs to another job"));
}

TEST_F(ControlRefusals, SizeDiffers) {
  Job larger = job_;
  larger.size = 3;
  EXPECT_TRUE(contains(error_of<UsageError>([&] { join(larger, 2); }), "the world has 2 ranks, this process says 3"));
}

TEST_F(ControlRefusals, RankOutside) {
  EXPECT_EQ(refusal_of(job_, [](control::Hello& hello) { hello.rank = 2; }).code, control::RefusalCode::kRankOutside);
}

TEST_F(ControlRefusals, OtherLibraryVersion) {
  const auto refusal = refusal_of(job_, [](control::Hello& hello) { hello.library += 1; });
  EXPECT_EQ(refusal.code, control::RefusalCode::kOtherLibrary);
  EXPECT_TRUE(
      contains(error_of<UsageError>([&] { control::throw_refusal(refusal, "rank 0", 1); }), "it runs another version"));
}

TEST_F(ControlRefusals, OtherProtocolVersion) {
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

TEST_F(ControlRefusals, TenThousandWrongTokensAreNotLetIn) {
  Job wrong = job_;
  for (int i = 0; i < 10'000; ++i) {
    wrong.token = "guess " + std::to_string(i);
    ASSERT_EQ(refusal_of(wrong, [](control::Hello&) {}).code, control::RefusalCode::kWrongToken) << i;
  }
}

TEST(ControlRefusal, RankTakenNamesTheFirst) {
  const Job job(3);
  auto zero = std::async(std::launch::async, [&] { return join(job, 0); });
  FakeRank first(job, 1);
  first.enrol();
  first.receive();
  const std::string error = error_of<UsageError>([&] { join(job, 1); });
  EXPECT_TRUE(contains(error, "the rank is already taken (by pid 4711 on host fake-host)"));
  auto two = join(job, 2);
  std::jthread leaving([&] { two->leave(); });
  first.send(control::encode(control::FrameType::kGoodbye));
  zero.get()->leave();
}

}  // namespace
}  // namespace trireme
