// events.jsonl of a run folder: what happened, one JSON object a line, only ever appended.
//
//   {"time":"2026-03-01T12:00:00.250Z","step":120,"kind":"step","values":{"loss":1.412,"tokens_per_s":4980.0}}
//
// A number that JSON cannot write is one of the texts "nan", "inf", "-inf". docs/runs.md lists the values of each kind.
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "trireme/observe/append_file.h"

namespace trireme {

enum class EventKind { kStart, kStep, kEval, kCheckpoint, kResume, kWarning, kStop, kEnd };
std::string_view to_string(EventKind kind);

/// A number, a truth value or a text.
class EventValue {
 public:
  EventValue(bool value) : data_(value) {}
  EventValue(std::integral auto value) : data_(static_cast<int64_t>(value)) {}
  EventValue(std::floating_point auto value) : data_(static_cast<double>(value)) {}
  EventValue(std::string value) : data_(std::move(value)) {}
  EventValue(std::string_view value) : data_(std::string(value)) {}
  EventValue(const char* value) : data_(std::string(value)) {}
  bool operator==(const EventValue&) const = default;

  /// Also of the texts "nan", "inf" and "-inf"; nothing for other texts.
  std::optional<double> number() const;
  /// Nothing but for a text.
  const std::string* text() const { return std::get_if<std::string>(&data_); }
  const std::variant<bool, int64_t, double, std::string>& data() const { return data_; }

 private:
  std::variant<bool, int64_t, double, std::string> data_;
};
using EventValues = std::vector<std::pair<std::string, EventValue>>;

struct Event {
  std::string time;  ///< UTC: "2026-03-01T12:00:00.250Z"
  int64_t step = 0;
  EventKind kind = EventKind::kStep;
  EventValues values;

  const EventValue* find(std::string_view name) const;
  /// The value as a number, where there is one.
  std::optional<double> number(std::string_view name) const;
  /// The value as a text, or an empty one.
  std::string text(std::string_view name) const;
};

/// The writer; worker 0 holds it. Threads: all. What is appended outlives the process at once, the machine a little
/// later: nothing is synced.
class EventLog {
 public:
  using Now = std::function<std::chrono::system_clock::time_point()>;
  /// Continues a file that is there; what a killed writer tore at its end is cut off first. Throws SystemError.
  explicit EventLog(const std::filesystem::path& path, Now now = std::chrono::system_clock::now);
  /// One write(). Throws SystemError, with the log as it was. A repeated name in `values` counts once: the last.
  void append(EventKind kind, int64_t step, const EventValues& values = {});

 private:
  std::mutex mutex_;
  AppendFile file_;
  Now now_;
};

/// What is left of a log, in the order of writing.
///
/// Of "step", "eval" and "checkpoint" the last one of a step counts. A "resume" at step S takes back those that were
/// written before it for steps beyond S; resume at 0 starts again. The other kinds happened, and stay.
struct EventHistory {
  std::vector<Event> events;
  size_t num_superseded = 0;
  int64_t num_processes = 0;          ///< that have written a "start"
  double seconds = 0;                 ///< of all of them, each from its first event to its last, superseded ones too
  bool torn = false;                  ///< the last line has no end and no meaning: its writer was killed
  std::vector<std::string> problems;  ///< a line for each other line that cannot be read: "line 7: not JSON: …"

  /// (step, value) of all events of this kind that have the value, by step.
  std::vector<std::pair<double, double>> series(EventKind kind, std::string_view name) const;
};
EventHistory parse_events(std::string_view text);
/// Warns on the log where lines cannot be read, and keeps the others. Throws SystemError where the file cannot.
EventHistory read_events(const std::filesystem::path& path);

/// "2026-03-01T12:00:00.250Z", and back: nothing for another form.
std::optional<std::chrono::system_clock::time_point> parse_utc(const std::string& text);
std::string format_utc(std::chrono::system_clock::time_point time);

}  // namespace trireme
