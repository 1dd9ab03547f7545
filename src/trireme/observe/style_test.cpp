// Widths of what our output is made of, and when colour is off.
#include "trireme/observe/style.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

namespace trireme {
namespace {

TEST(Style, DisplayWidth) {
  EXPECT_EQ(display_width(""), 0);
  EXPECT_EQ(display_width("abc"), 3);
  EXPECT_EQ(display_width("αβγ µs ×"), 8);
  EXPECT_EQ(display_width("████▌░"), 6);
  EXPECT_EQ(display_width("┌─┐ ←"), 5);
  EXPECT_EQ(display_width("日本"), 4);
  EXPECT_EQ(display_width("e\u0301"), 1);
  EXPECT_EQ(display_width("\x1b[1mab\x1b[0m"), 2);
  EXPECT_EQ(display_width("\xff\xc3"), 2);  // not UTF-8: a column each
  EXPECT_EQ(display_width("\x1b["), 0);
}

TEST(Style, Cut) {
  EXPECT_EQ(cut_to_width("abcdef", 6), "abcdef");
  EXPECT_EQ(cut_to_width("abcdef", 4), "abc…");
  EXPECT_EQ(cut_to_width("αβγδ", 3), "αβ…");
  EXPECT_EQ(cut_to_width("日本語", 4), "日…");
  EXPECT_EQ(cut_to_width("\x1b[1mabcdef\x1b[0m", 3), "\x1b[1mab…\x1b[0m");
  EXPECT_EQ(cut_to_width("abc", 0), "");
}

TEST(Style, NoTerminalNoColour) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_FALSE(is_terminal(ends[1]));
  EXPECT_FALSE(has_colour(ends[1]));
  setenv("COLUMNS", "123", 1);
  EXPECT_EQ(terminal_width(ends[1]), 123);
  unsetenv("COLUMNS");
  EXPECT_EQ(terminal_width(ends[1]), 80);
  close(ends[0]);
  close(ends[1]);
}

TEST(Style, Emphasis) {
  EXPECT_EQ(emphasised("x", Emphasis::kBold, false), "x");
  EXPECT_EQ(emphasised("x", Emphasis::kBold, true), "\x1b[1mx\x1b[0m");
  EXPECT_EQ(emphasised("x", Emphasis::kCyan, true), "\x1b[36mx\x1b[0m");
}

TEST(Style, TerminalHonoursVariables) {
  const int fd = posix_openpt(O_RDWR | O_NOCTTY);
  if (fd < 0 || !isatty(fd)) GTEST_SKIP() << "no pseudo-terminal here";
  setenv("TERM", "xterm", 1);
  unsetenv("NO_COLOR");
  EXPECT_TRUE(has_colour(fd));
  setenv("NO_COLOR", "1", 1);
  EXPECT_TRUE(is_terminal(fd));
  EXPECT_FALSE(has_colour(fd));
  unsetenv("NO_COLOR");
  setenv("TERM", "dumb", 1);
  EXPECT_FALSE(is_terminal(fd));
  close(fd);
}

}  // namespace
}  // namespace trireme
