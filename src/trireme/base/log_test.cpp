// Levels, prefixes and whole lines.
#include "trireme/base/log.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace trireme {
namespace {

using testing::internal::CaptureStderr;
using testing::internal::GetCapturedStderr;

void in_thread(const std::function<void()>& body) { std::thread(body).join(); }

/// Runs `body` in a new process, where the environment has not been read yet; its standard error must match.
#define EXPECT_LOGGED_ANEW(body, pattern)         \
  GTEST_FLAG_SET(death_test_style, "threadsafe"); \
  EXPECT_EXIT(                                    \
      {                                           \
        body;                                     \
        std::_Exit(0);                            \
      },                                          \
      testing::ExitedWithCode(0), pattern);       \
  unsetenv("TRIREME_LOG")

void log_all() {
  log_error("1");
  log_warn("2");
  log_info("3");
  log_debug("4");
}

TEST(LogDeathTest, LevelFromEnvironment) {
  setenv("TRIREME_LOG", " Info ", 1);
  EXPECT_LOGGED_ANEW(log_all(), "^trireme error: 1\ntrireme warn: 2\ntrireme info: 3\n$");
}

TEST(LogDeathTest, WarnByDefault) {
  unsetenv("TRIREME_LOG");
  EXPECT_LOGGED_ANEW(log_all(), "^trireme error: 1\ntrireme warn: 2\n$");
}

TEST(LogDeathTest, WrongLevelIsSaidOnce) {
  setenv("TRIREME_LOG", "loud", 1);
  EXPECT_LOGGED_ANEW(log_all(),
                     "^trireme warn: TRIREME_LOG = \"loud\" is not a level [^\n]*\n"
                     "trireme error: 1\ntrireme warn: 2\n$");
}

TEST(Log, LevelsCanBeSet) {
  set_log_rank(-1);
  set_log_level(LogLevel::kError);
  CaptureStderr();
  log_warn("no");
  log_error("yes");
  set_log_level(LogLevel::kDebug);
  log_debug("yes\n");
  EXPECT_EQ(GetCapturedStderr(), "trireme error: yes\ntrireme debug: yes\n");
}

TEST(Log, KeepsErrno) {
  CaptureStderr();
  errno = ENOSPC;
  log_error("x");
  EXPECT_EQ(errno, ENOSPC);
  GetCapturedStderr();
}

TEST(Log, RankOfThread) {
  CaptureStderr();
  in_thread([] {
    set_log_rank(3);
    in_thread([] { log_warn("a helper"); });
    in_thread([] {
      set_log_rank(5);
      log_warn("another");
    });
    log_warn("mine");
  });
  set_log_rank(-1);
  EXPECT_EQ(GetCapturedStderr(),
            "trireme[rank 3] warn: a helper\ntrireme[rank 5] warn: another\ntrireme[rank 3] warn: mine\n");
}

TEST(Log, LinesOfThreadsDoNotMix) {
  CaptureStderr();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([i] {
      set_log_rank(i);
      for (int j = 0; j < 100; ++j) log_warn("{}", std::string(50, static_cast<char>('a' + i)));
    });
  }
  for (auto& thread : threads) thread.join();
  const std::string text = GetCapturedStderr();
  std::vector<int> seen(8);
  for (size_t at = 0; at < text.size();) {
    const std::string line = text.substr(at, text.find('\n', at) - at);
    at += line.size() + 1;
    const int rank = line.at(13) - '0';
    ASSERT_EQ(line, fmt::format("trireme[rank {}] warn: {}", rank, std::string(50, static_cast<char>('a' + rank))));
    ++seen[static_cast<size_t>(rank)];
  }
  EXPECT_EQ(seen, std::vector<int>(8, 100));
}

}  // namespace
}  // namespace trireme
