// What the terminal can show: colour, its width, and how wide a text is on it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trireme {

/// A terminal that understands cursor movement: not a file, a pipe or TERM=dumb.
bool is_terminal(int fd);
/// A terminal, and NO_COLOR is not set.
bool has_colour(int fd);
/// In columns; COLUMNS, or 80, where it cannot be told.
int terminal_width(int fd);

enum class Emphasis { kBold, kDim, kRed, kGreen, kYellow, kCyan };
/// The text as it is unless `on`, which is has_colour() of where it goes.
std::string emphasised(std::string_view text, Emphasis emphasis, bool on);

/// Columns that a UTF-8 text takes: wide characters two, combining ones and escape sequences none.
int display_width(std::string_view text);
/// The text cut to at most `width` columns, with "…" at the end if anything was cut. Escape sequences do not count.
std::string cut_to_width(std::string_view text, int width);

}  // namespace trireme
