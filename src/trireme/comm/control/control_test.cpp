// The control plane of a running job, with all ranks in one process: failing, asking, connecting, leaving.
#include "trireme/comm/control/control.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/comm/control/control_silence.h"
#include "trireme/comm/control/control_test_util.h"

namespace trireme {
namespace {

using namespace control::testing;
using namespace std::chrono_literals;

TEST(ControlFailure, AReportReachesEverybody) {
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

TEST(ControlFailure, ADeadRankIsNamedToAll) {
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

TEST(ControlFailure, ASilentRankIsNamedToAll) {
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
  EXPECT_TRUE(contains(zero->failure()->message, "rank 1 (host fake-host, pid 4711) stopped answering 0.3 s ago"));
  // Should it wake up, it learns what it was held for.
  control::Frame frame = silent.receive();
  while (frame.type != control::FrameType::kFailure) frame = silent.receive();
  EXPECT_EQ(control::decode_failure(frame.payload).culprit, 1);
}

TEST(ControlFailure, ASilentOrDeadCoordinatorIsNamed) {
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
    EXPECT_TRUE(
        contains(one->failure()->message, dies ? "rank 0 (host fake-host, pid 4711) died: its connection closed"
                                               : "rank 0 (host fake-host, pid 4711) stopped answering 0.2 s ago"));
    EXPECT_THROW(one->survey(Deadline::after(100ms)), Error);
    const auto start = Clock::now();
    one->leave();
    EXPECT_LT(Clock::now() - start, 500ms);
  }
}

TEST(ControlFailure, AnImpostorOfTheCoordinatorIsNotTrusted) {
  const Job job(2);
  Job wrong = job;
  wrong.token = "guess";
  FakeCoordinator fake(wrong);
  ControlOptions options = quick();
  options.join_timeout = 300ms;
  auto error = std::async(std::launch::async, [&] { return error_of<Error>([&] { join(job, 1, options); }); });
  EXPECT_THROW(fake.serve_one(), Error);
  EXPECT_TRUE(contains(error.get(), "does not know the token"));
}

TEST(ControlSilence, TimeAwayDoesNotCount) {
  const Clock::time_point start{};
  control::AbsenceDetector absence(200ms, 5s, start);
  EXPECT_FALSE(absence.was_away(start + 200ms));
  EXPECT_FALSE(absence.was_away(start + 1300ms));
  EXPECT_TRUE(absence.was_away(start + 2600ms));
  EXPECT_FALSE(absence.was_away(start + 2800ms));
}

TEST(ControlSurvey, TellsWhatEveryRankIsDoing) {
  ControlOptions options = quick();
  options.heartbeat_interval = 10ms;
  Planes planes = join_all(Job(3), options);
  for (uint64_t r = 0; r < 3; ++r) {
    RankProgress& progress = planes[r]->progress();
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

TEST(ControlConnect, CarriesDataBothWays) {
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

TEST(ControlConnect, RefusesASecondConnectionOfAChannel) {
  Planes planes = join_all(Job(2));
  Socket first = planes[1]->connect(0, 7, Deadline::after(5s));
  EXPECT_TRUE(contains(error_of<Error>([&] { planes[1]->connect(0, 7, Deadline::after(5s)); }),
                       "it already has a connection of that channel"));
  // One that was given up makes room.
  first = Socket();
  Socket second = planes[1]->connect(0, 7, Deadline::after(5s));
  std::optional<Socket> taken;
  ASSERT_TRUE(eventually([&] { return (taken = planes[0]->accept(1, 7)).has_value(); }));
  exchange(second, *taken, 1000);
  EXPECT_THROW(planes[1]->connect(2, 0, Deadline::after(1s)), UsageError);
  leave_all(planes);
}

TEST(ControlConnect, ToADeadRankEndsAtTheDeadlineOrWithTheFailure) {
  const Job job(2);
  auto zero_joins = std::async(std::launch::async, [&] { return join(job, 0); });
  auto one = std::make_unique<FakeRank>(job, 1);
  one->enrol();
  auto zero = zero_joins.get();
  const auto start = Clock::now();
  EXPECT_TRUE(contains(error_of<SystemError>([&] { zero->connect(1, 0, Deadline::after(100ms)); }),
                       "connect rank 0 to rank 1 (host fake-host, pid 4711) at 127.0.0.1:1"));
  EXPECT_LT(Clock::now() - start, 500ms);
  one.reset();
  EXPECT_TRUE(contains(error_of<Error>([&] { zero->connect(1, 0, Deadline::after(30s)); }), "died"));
  EXPECT_LT(Clock::now() - start, 3s);
}

TEST(ControlConnect, StrangersDoNotReachATransport) {
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

TEST(ControlLeave, IsNoFailure) {
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

TEST(ControlLeave, TheCoordinatorOutlivesRankZero) {
  Planes planes = join_all(Job(3));
  std::jthread zero([&] { planes[0]->leave(); });
  EXPECT_FALSE(eventually([&] { return planes[1]->failure() || planes[2]->failure(); }, 100ms));
  EXPECT_EQ(planes[1]->survey(Deadline::after(1s)).size(), 3u);
  planes[1]->leave();
  planes[2]->leave();
  EXPECT_EQ(planes[1]->failure(), nullptr);
  EXPECT_EQ(planes[2]->failure(), nullptr);
}

TEST(ControlLeave, AfterAFailureNobodyIsWaitedFor) {
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

TEST(ControlLeave, TheJobCanBeJoinedAgainAtOnce) {
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
