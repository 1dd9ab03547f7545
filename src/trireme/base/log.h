// Log lines on standard error, for what the caller cannot be told by an exception.
//
// Threads: all. Each line is one write(), so that lines of different processes do not mix.
// The level comes from TRIREME_LOG: error, warn (the default), info or debug.
#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

namespace trireme {

enum class LogLevel { kError, kWarn, kInfo, kDebug };

/// Lines then begin with "trireme[rank N]". Counts for the calling thread, and for threads that have set none.
/// -1 takes it back.
void set_log_rank(int rank);
/// Overrides TRIREME_LOG.
void set_log_level(LogLevel level);
LogLevel log_level();
/// While a progress line stands on the terminal, lines wipe it first; it is drawn again after them.
void set_log_wipes_line(bool wipes);

/// Writes one line whatever the level is; use log_warn and the like instead.
void write_log_line(LogLevel level, std::string_view message);

template <typename... Args>
void log_at(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (level <= log_level()) write_log_line(level, fmt::vformat(format, fmt::make_format_args(args...)));
}
template <typename... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::kError, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_warn(fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::kWarn, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::kInfo, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::kDebug, format, std::forward<Args>(args)...);
}

}  // namespace trireme
