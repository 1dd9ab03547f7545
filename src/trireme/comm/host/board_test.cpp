#include "trireme/comm/host/board.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "support/quiet_control.h"

namespace trireme {
namespace {

using namespace std::chrono_literals;

/// A board for `size` members, which are threads of the test.
class Table {
 public:
  explicit Table(int size) : areas_(std::make_shared<ThreadSpace::FixedAreas>(size)), space_(areas_) {
    std::vector<int> ranks(static_cast<size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    for (int r = 0; r < size; ++r) boards_.push_back(std::make_unique<Board>(areas_->of(0), r, ranks, space_));
  }
  Board& operator[](int member) { return *boards_[static_cast<size_t>(member)]; }
  template <typename Body>
  void run(Body body) {
    std::vector<std::jthread> threads;
    for (size_t r = 0; r < boards_.size(); ++r) threads.emplace_back([&, r] { body(*boards_[r]); });
  }

  QuietControl control;

 private:
  std::shared_ptr<ThreadSpace::FixedAreas> areas_;
  ThreadSpace space_;
  std::vector<std::unique_ptr<Board>> boards_;
};

Board::Mine post_of(uint64_t fingerprint, uint64_t detail = 0) {
  Board::Mine mine;
  mine.fingerprint = fingerprint;
  mine.digest.kind = OperationKind::kBarrier;
  mine.digest.sequence = fingerprint;
  mine.detail = detail;
  return mine;
}

TEST(Board, NobodyLeavesAMeetingBeforeAllHaveCome) {
  constexpr int kMembers = 5, kMeetings = 200;
  Table table(kMembers);
  std::vector<std::atomic<int>> arrived(kMeetings);
  std::atomic<int> early = 0;
  table.run([&](Board& board) {
    for (uint64_t i = 0; i < kMeetings; ++i) {
      arrived[i].fetch_add(1);
      board.meet(post_of(i), table.control.waiter());
      if (arrived[i].load() != kMembers) ++early;
    }
  });
  EXPECT_EQ(early, 0);
}

TEST(Board, ShowsWhatEverybodyPosted) {
  constexpr int kMembers = 3, kMeetings = 100;
  Table table(kMembers);
  std::atomic<int> wrong = 0;
  table.run([&](Board& board) {
    std::vector<int> own(kMeetings);
    for (uint64_t i = 0; i < kMeetings; ++i) {
      own[i] = board.rank() * 1000 + static_cast<int>(i);
      Board::Mine mine = post_of(i, static_cast<uint64_t>(board.rank()) + 10 * i);
      mine.place = reinterpret_cast<uint64_t>(&own[i]);
      mine.flags = static_cast<uint32_t>(board.rank());
      board.meet(mine, table.control.waiter());
      for (int member = 0; member < kMembers; ++member) {
        const Board::Post& post = board.post(member);
        const int theirs = *reinterpret_cast<const int*>(board.place_at(member));
        if (post.detail != static_cast<uint64_t>(member) + 10 * i || post.flags != static_cast<uint32_t>(member) ||
            theirs != member * 1000 + static_cast<int>(i)) {
          ++wrong;
        }
      }
    }
    board.meet(post_of(kMeetings), table.control.waiter());  // until then peers read `own`
  });
  EXPECT_EQ(wrong, 0);
}

TEST(Board, TellsEveryMemberWhoDisagrees) {
  Table table(3);
  std::atomic<int> told = 0;
  table.run([&](Board& board) {
    try {
      board.meet(post_of(board.rank() == 1 ? 99 : 7), table.control.waiter());
    } catch (const OperationMismatch& mismatch) {
      const uint64_t theirs = board.rank() == 1 ? 7 : 99;
      if (mismatch.theirs.sequence == theirs && (board.rank() == 1) != (mismatch.peer == 1)) ++told;
    }
  });
  EXPECT_EQ(told, 3);
}

TEST(Board, NamesTheMissingWhenTimeIsUp) {
  Table table(4);
  std::vector<std::jthread> threads;
  std::atomic<int> gave_up = 0;
  for (const int member : {0, 2}) {
    threads.emplace_back([&, member] {
      try {
        table[member].meet(post_of(1), table.control.waiter(100ms));
      } catch (const WaitTimedOut&) {
        ++gave_up;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(gave_up, 2);
  EXPECT_EQ(table[0].missing(), (std::vector<int>{1, 3}));
  EXPECT_EQ(table[2].missing(), (std::vector<int>{1, 3}));
}

TEST(Board, WakesWhoSleeps) {
  Table table(2);
  std::jthread sleeper([&] { table[0].meet(post_of(1), table.control.waiter()); });
  // The sleeper has no spins and few yields: it is asleep well before this.
  std::this_thread::sleep_for(20ms);
  table[1].meet(post_of(1), table.control.waiter());
}

TEST(Board, EndsWithTheJob) {
  Table table(2);
  table.control.report({1, "rank 1 died"});
  EXPECT_THROW(table[0].meet(post_of(1), table.control.waiter()), JobFailed);
}

TEST(Board, StagesAreApartAndFit) {
  for (const int members : {1, 2, 3, 16, 200, 1000}) {
    const size_t bytes = Board::stage_bytes(members);
    EXPECT_GE(bytes, 64u);
    EXPECT_EQ(bytes % 64, 0u);
    EXPECT_LE(2 * bytes * static_cast<size_t>(members), size_t{4} << 20);
    // Addresses only: nothing is touched.
    alignas(64) static std::byte memory[64];
    QuietControl control;
    ThreadSpace space(nullptr);
    const Board board(memory, 0, std::vector<int>(static_cast<size_t>(members)), space);
    const std::byte* const end = memory + Board::num_bytes(members);
    EXPECT_EQ(board.stage(0, 1), board.stage(0, 0) + bytes);
    EXPECT_LE(board.stage(members - 1, 1) + bytes, end);
    EXPECT_GE(board.stage(0, 0), memory + sizeof(Board::Seat) * static_cast<size_t>(members));
  }
}

}  // namespace
}  // namespace trireme
