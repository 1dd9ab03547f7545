#include "trireme/train/broadcast_result.h"

#include <gtest/gtest.h>

#include <atomic>

#include "trireme/base/error.h"
#include "trireme/comm/world.h"

namespace trireme {
namespace {

TEST(BroadcastResult, EveryRankHasTheRoots) {
  for (const size_t length : {size_t{0}, size_t{1}, size_t{100'000}}) {
    run_as_threads(3, [&](World& world) {
      for (int root = 0; root < 3; ++root) {
        const std::string own = world.rank() == root ? std::string(length, static_cast<char>('a' + root)) : "other";
        EXPECT_EQ(broadcast_text(world.comm(), own, root), std::string(length, static_cast<char>('a' + root)));
      }
    });
  }
}

TEST(BroadcastResult, RunsOnceAndAllHaveIt) {
  std::atomic<int> runs{0};
  run_as_threads(3, [&](World& world) {
    const auto work = [&] {
      ++runs;
      return std::string("a path");
    };
    EXPECT_EQ(broadcast_result(world.comm(), work), "a path");
    EXPECT_EQ(broadcast_result(
                  world.comm(), [] { return ""; }, 2),
              "");
  });
  EXPECT_EQ(runs, 1);
}

TEST(BroadcastResult, AllThrowWhatTheRootThrew) {
  run_as_threads(3, [&](World& world) {
    std::string message;
    try {
      broadcast_result(world.comm(), []() -> std::string { throw UsageError("no such folder", "make it"); });
    } catch (const Error& error) {
      message = error.what();
    }
    EXPECT_NE(message.find("no such folder"), std::string::npos) << message;
    EXPECT_NE(message.find("make it"), std::string::npos) << message;
    // The next exchange is in step again.
    EXPECT_EQ(broadcast_result(world.comm(), [] { return std::string("good"); }), "good");
  });
}

TEST(RunOnAll, TheFirstThatFailsTellsAndTheOthersAreSilent) {
  for (const int first : {0, 1, 2}) {
    run_as_threads(3, [&](World& world) {
      const int rank = world.rank();
      run_on_all(world.comm(), [] {});
      std::string told;
      bool silent = false;
      try {
        run_on_all(world.comm(), [&] {
          if (rank >= first) throw UsageError("no such file");
        });
      } catch (const RelayedError& error) {
        silent = true;
        EXPECT_TRUE(error.is_usage());
      } catch (const UsageError& error) {
        told = error.what();
      }
      EXPECT_EQ(told, rank == first ? "no such file" : "");
      EXPECT_EQ(silent, rank != first);
      const auto fails = [] { throw Error("broken"); };
      EXPECT_THROW(run_on_all(world.comm(), fails), Error);
    });
  }
}

TEST(ThrowOnce, OneRankSpeaks) {
  run_as_threads(2, [](World& world) {
    bool silent = false;
    try {
      throw_once(world.comm(), Error("all have seen it"));
    } catch (const RelayedError& error) {
      silent = true;
      EXPECT_FALSE(error.is_usage());
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "all have seen it");
    }
    EXPECT_EQ(silent, world.rank() == 1);
  });
}

TEST(BroadcastResult, AloneItIsACall) {
  run_as_threads(1, [&](World& world) {
    EXPECT_EQ(broadcast_result(world.comm(), [] { return 7; }), "7");
    EXPECT_THROW(broadcast_result(world.comm(), []() -> std::string { throw Error("bad"); }), Error);
  });
}

}  // namespace
}  // namespace trireme
