#include "trireme/observe/style.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>

#include "trireme/base/text.h"

namespace trireme {
namespace {

std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

struct Glyph {
  size_t num_bytes;
  int width;
};

int width_of(uint32_t c) {
  const auto in = [c](uint32_t first, uint32_t last) { return c >= first && c <= last; };
  if (c < 0x20 || in(0x7f, 0x9f)) return 0;
  if (in(0x300, 0x36f) || in(0x200b, 0x200f) || in(0xfe00, 0xfe0f) || c == 0xfeff) return 0;
  if (in(0x1100, 0x115f) || in(0x2e80, 0xa4cf) || in(0xac00, 0xd7a3) || in(0xf900, 0xfaff) || in(0xfe30, 0xfe6f) ||
      in(0xff00, 0xff60) || in(0xffe0, 0xffe6) || in(0x1f300, 0x1faff) || in(0x20000, 0x3fffd)) {
    return 2;
  }
  return 1;
}

/// The first character or escape sequence of a text that is not empty. A stray byte counts as one column.
Glyph first_glyph(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) == 0x1b && text.size() > 1 && text[1] == '[') {
    size_t end = 2;
    while (end < text.size() && (byte(end) < 0x40 || byte(end) > 0x7e)) ++end;
    return {std::min(end + 1, text.size()), 0};
  }
  const Character c = utf8_at(text, 0);
  return {c.num_bytes, c.is_valid ? width_of(c.code_point) : 1};
}

}  // namespace

bool is_terminal(int fd) { return ::isatty(fd) == 1 && variable("TERM") != "dumb"; }
bool has_colour(int fd) { return is_terminal(fd) && variable("NO_COLOR").empty(); }

int terminal_width(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const std::string_view columns = variable("COLUMNS");
  int width = 0;
  std::from_chars(columns.data(), columns.data() + columns.size(), width);
  return width > 0 ? width : 80;
}

std::string emphasised(std::string_view text, Emphasis emphasis, bool on) {
  if (!on) return std::string(text);
  static constexpr int kCodes[] = {1, 2, 31, 32, 33, 36};
  return fmt::format("\x1b[{}m{}\x1b[0m", kCodes[static_cast<size_t>(emphasis)], text);
}

int display_width(std::string_view text) {
  int width = 0;
  while (!text.empty()) {
    const Glyph glyph = first_glyph(text);
    width += glyph.width;
    text.remove_prefix(glyph.num_bytes);
  }
  return width;
}

std::string cut_to_width(std::string_view text, int width) {
  if (display_width(text) <= width) return std::string(text);
  if (width <= 0) return "";
  std::string cut;
  int used = 0;
  bool marked = false, full = false;
  while (!text.empty()) {
    const Glyph glyph = first_glyph(text);
    const bool escape = text[0] == '\x1b';
    full = full || (!escape && used + glyph.width > width - 1);
    // Escapes after the cut are kept: they end the colour.
    if (!full || escape) cut += text.substr(0, glyph.num_bytes);
    if (!full) used += glyph.width;
    if (full && !marked) {
      cut += "…";
      marked = true;
    }
    text.remove_prefix(glyph.num_bytes);
  }
  return cut;
}

}  // namespace trireme
