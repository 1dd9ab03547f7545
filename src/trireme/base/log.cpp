#include "trireme/base/log.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <string>

#include "trireme/base/text.h"

namespace trireme {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"error", "warn", "info", "debug"};
constexpr int kUnset = -1;

std::atomic<int> g_level{kUnset};
std::atomic<int> g_log_rank{kUnset};
std::atomic<bool> g_wipes_line{false};
thread_local int t_log_rank = kUnset;

int level_from_environment() {
  const char* const text = std::getenv("TRIREME_LOG");
  if (text == nullptr || *text == '\0') return static_cast<int>(LogLevel::kWarn);
  const std::string wanted = to_lower(trim(text));
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (wanted == kNames[i]) return static_cast<int>(i);
  }
  // A wrong level must not stop a job.
  write_log_line(LogLevel::kWarn,
                 fmt::format("TRIREME_LOG = \"{}\" is not a level ({}); using warn", text, join(kNames, ", ")));
  return static_cast<int>(LogLevel::kWarn);
}

}  // namespace

void set_log_rank(int rank) {
  t_log_rank = rank;
  g_log_rank.store(rank, std::memory_order_relaxed);
}

void set_log_level(LogLevel level) { g_level.store(static_cast<int>(level), std::memory_order_relaxed); }

void set_log_wipes_line(bool wipes) { g_wipes_line.store(wipes, std::memory_order_relaxed); }

LogLevel log_level() {
  int level = g_level.load(std::memory_order_relaxed);
  if (level == kUnset) {
    static const int from_environment = level_from_environment();
    level = from_environment;
    int expected = kUnset;
    if (!g_level.compare_exchange_strong(expected, level, std::memory_order_relaxed)) level = expected;
  }
  return static_cast<LogLevel>(level);
}

void write_log_line(LogLevel level, std::string_view message) {
  const int saved_errno = errno;
  const int rank = t_log_rank != kUnset ? t_log_rank : g_log_rank.load(std::memory_order_relaxed);
  std::string line = g_wipes_line.load(std::memory_order_relaxed) ? "\r\x1b[K" : "";
  line += rank == kUnset ? "trireme " : fmt::format("trireme[rank {}] ", rank);
  line += kNames[static_cast<size_t>(level)];
  line += ": ";
  line += trim(message);
  line += '\n';
  std::string_view left = line;
  while (!left.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;  // nobody reads: there is no place left to complain
    left.remove_prefix(static_cast<size_t>(written));
  }
  errno = saved_errno;
}

}  // namespace trireme
