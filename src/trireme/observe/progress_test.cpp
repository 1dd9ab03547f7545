// What the line says, and how often, under a clock that the test turns.
#include "trireme/observe/progress.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "trireme/observe/style.h"

namespace trireme {
namespace {

using namespace std::chrono_literals;

/// A pipe to write to, and a clock to turn.
class ProgressTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(pipe(ends_), 0); }
  void TearDown() override {
    close(ends_[0]);
    if (ends_[1] >= 0) close(ends_[1]);
  }
  ProgressOptions options(bool terminal) {
    ProgressOptions options;
    options.label = "step";
    options.total = 600;
    options.unit = "tok";
    options.units_per_one = 10;
    options.fd = ends_[1];
    options.now = [this] { return now_; };
    options.terminal = terminal;
    options.colour = false;
    options.width = 80;
    return options;
  }
  /// All that was written; nothing can be written afterwards.
  std::string output() {
    close(ends_[1]);
    ends_[1] = -1;
    std::string text(1 << 16, '\0');
    const ssize_t n = read(ends_[0], text.data(), text.size());
    text.resize(n > 0 ? static_cast<size_t>(n) : 0);
    return text;
  }
  int ends_[2] = {-1, -1};
  Clock::time_point now_{1h};
};

TEST_F(ProgressTest, Bar) {
  EXPECT_EQ(progress_bar(0, 4), "    ");
  EXPECT_EQ(progress_bar(1, 4), "████");
  EXPECT_EQ(progress_bar(0.5, 4), "██  ");
  EXPECT_EQ(progress_bar(1. / 32, 4), "▏   ");
  EXPECT_EQ(progress_bar(0.999, 4), "███▉");
  EXPECT_EQ(progress_bar(7, 2), "██");
  EXPECT_EQ(progress_bar(-1, 2), "  ");
  EXPECT_EQ(progress_bar(0. / 0., 2), "  ");
}

TEST_F(ProgressTest, TerminalLine) {
  {
    Progress progress(options(true));
    now_ += 10s;
    progress.update(120, "loss 1.412");
    now_ += 40s;
    progress.update(600, "loss 0.3");
  }
  EXPECT_EQ(output(),
            "\rstep 120/600  ████                  120 tok/s  loss 1.412  40 s left\x1b[K"
            "\rstep 600/600  ████████████████████  120 tok/s  loss 0.3\x1b[K"
            "\rstep 600/600  ████████████████████  120 tok/s  loss 0.3  50 s\x1b[K\n");
}

TEST_F(ProgressTest, TenTimesASecondAtMost) {
  Progress progress(options(true));
  for (int i = 0; i < 1000; ++i) {
    now_ += 1ms;
    progress.update(1);
  }
  const std::string text = output();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\r'), 10);
  EXPECT_NO_THROW(progress.finish()) << "nobody reads";
}

TEST_F(ProgressTest, NarrowTerminal) {
  for (const int width : {10, 20, 30, 45, 60}) {
    auto narrow = options(true);
    narrow.width = width;
    narrow.colour = true;
    Progress progress(narrow);
    now_ += 1s;
    progress.update(30, "loss 1.412");
  }
  std::string text = output();
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of("\r\n", at + 1), text.size());
    EXPECT_LT(display_width(text.substr(at, end - at)), 60);
    at = end;
  }
  EXPECT_NE(text.find("\rstep  30…"), std::string::npos);
}

TEST_F(ProgressTest, PlainLines) {
  {
    Progress progress(options(false));
    for (int i = 1; i <= 250; ++i) {
      now_ += 100ms;
      progress.update(static_cast<uint64_t>(i), "loss 2");
    }
  }
  EXPECT_EQ(output(),
            "step 100/600  16 %  100 tok/s  loss 2  50 s left\n"
            "step 200/600  33 %  100 tok/s  loss 2  40 s left\n"
            "step 250/600  41 %  100 tok/s  loss 2  25 s\n");
}

TEST_F(ProgressTest, UnknownTotal) {
  auto unknown = options(true);
  unknown.total = 0;
  unknown.label = "";
  {
    Progress progress(unknown);
    now_ += 1s;
    progress.update(1200);
  }
  EXPECT_EQ(output(), "\r1,200  12,000 tok/s\x1b[K\r1,200  12,000 tok/s  1 s\x1b[K\n");
}

TEST_F(ProgressTest, NothingDoneNothingShown) {
  { Progress progress(options(true)); }
  EXPECT_EQ(output(), "");
}

TEST_F(ProgressTest, AVanishingLineLeavesNothing) {
  for (const bool terminal : {true, false}) {
    ProgressOptions shown = options(terminal);
    shown.vanishes = true;
    Progress progress(shown);
    progress.update(3, "now");
    progress.finish();
  }
  const std::string text = output();
  EXPECT_NE(text.find("now"), std::string::npos) << "a terminal sees it meanwhile";
  EXPECT_TRUE(text.ends_with("\r\x1b[K")) << text;
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
}

TEST_F(ProgressTest, RateIsOfTheLastSeconds) {
  auto slow = options(true);
  slow.total = 100'000;
  Progress progress(slow);
  uint64_t done = 0;
  for (int i = 0; i < 100; ++i) now_ += 1s, progress.update(++done);
  for (int i = 0; i < 100; ++i) now_ += 1s, progress.update(done += 50);
  const std::string text = output();
  EXPECT_NE(text.substr(text.rfind('\r')).find("500 tok/s"), std::string::npos) << text.substr(text.rfind('\r'));
}

}  // namespace
}  // namespace trireme
