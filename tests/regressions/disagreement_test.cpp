// Disagreements that were noticed late or not at all.
#include <gtest/gtest.h>

#include <thread>

#include "support/pipe_link.h"
#include "support/quiet_control.h"
#include "trireme/comm/world.h"

namespace trireme {
namespace {

using namespace std::chrono_literals;

/// Rank 0 calls with `odd`, the others with `usual`. What each rank was told; an empty text for nothing.
std::vector<std::string> told(int ranks, ReduceOp odd_op, ReduceOp usual_op, Algorithm odd, Algorithm usual) {
  std::vector<std::string> messages(static_cast<size_t>(ranks));
  run_as_threads(ranks, [&](World& world) {
    CallOptions options;
    options.ordered = false;
    options.algorithm = world.rank() == 0 ? odd : usual;
    options.timeout = 20s;
    std::vector<float> data(1000, 1.f);
    try {
      world.comm().all_reduce(data, world.rank() == 0 ? odd_op : usual_op, options);
      world.leave();
    } catch (const CommError& error) {
      messages[static_cast<size_t>(world.rank())] = error.what();
    }
  });
  return messages;
}

// The parts of a sum and of an average on two levels are the same: each rank went its own way in the end.
TEST(Disagreement, OfSumAndAverageOnTwoLevelsIsNoticed) {
  for (const std::string& message :
       told(4, ReduceOp::kAverage, ReduceOp::kSum, Algorithm::kTwoLevel, Algorithm::kTwoLevel))
    EXPECT_NE(message.find("ranks disagree"), std::string::npos) << message;
}

// One waits at the board, the others for messages; or all for messages that nobody sends. The deadline ended it.
TEST(Disagreement, OfAlgorithmsThatNeverMeetIsNoticedAtOnce) {
  const auto start = Clock::now();
  for (const auto& [odd, usual] :
       {std::pair{Algorithm::kInPlace, Algorithm::kRing}, std::pair{Algorithm::kFarthestFirst, Algorithm::kRing},
        std::pair{Algorithm::kTree, Algorithm::kButterfly}}) {
    for (const std::string& message : told(5, ReduceOp::kSum, ReduceOp::kSum, odd, usual)) {
      EXPECT_NE(message.find("ranks disagree"), std::string::npos) << message;
      EXPECT_NE(message.find("rank 0 is the odd one"), std::string::npos) << message;
    }
  }
  EXPECT_LT(Clock::now() - start, 10s);
}

// The groups of the two levels were made with the world's patience instead of the call's.
TEST(Disagreement, OfOneWhoIsMissingOnTwoLevelsKeepsTheDeadline) {
  const auto start = Clock::now();
  run_as_threads(3, [&](World& world) {
    if (world.rank() == 2) return std::this_thread::sleep_for(600ms);
    CallOptions options;
    options.algorithm = Algorithm::kTwoLevel;
    options.timeout = 200ms;
    std::vector<float> data(10);
    EXPECT_THROW(world.comm().all_reduce(data, ReduceOp::kSum, options), CommError);
    EXPECT_LT(Clock::now() - start, 5s);
  });
}

// Frames of one collective in another lane were kept aside for ever.
TEST(Disagreement, OfLanesIsNoticed) {
  PipeWorld world(2);
  QuietControl control;
  FrameHeader mine, theirs;
  mine.digest.sequence = theirs.digest.sequence = 5;
  mine.fingerprint = 1;
  theirs.fingerprint = 2;
  theirs.lane = 3;
  std::vector<std::byte> in(8), out(8);
  const auto sent = world[1].start_send(0, theirs, out);
  const Endpoint::Ticket ticket = world[0].start_recv(1, mine, in);
  EXPECT_THROW(world[0].wait(std::span(&ticket, 1), control.waiter(2s)), OperationMismatch);

  // Nor can anything of an earlier collective be left.
  PipeWorld later(2);
  theirs.digest.sequence = 4;
  const auto stale = later[1].start_send(0, theirs, out);
  const Endpoint::Ticket other = later[0].start_recv(1, mine, in);
  EXPECT_THROW(later[0].wait(std::span(&other, 1), control.waiter(2s)), OperationMismatch);
}

}  // namespace
}  // namespace trireme
