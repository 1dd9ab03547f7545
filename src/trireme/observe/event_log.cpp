#include "trireme/observe/event_log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/log.h"
#include "trireme/observe/style.h"

namespace trireme {
namespace {

constexpr uint64_t kMostBytes = uint64_t{4} << 30;  // of a log: twenty million steps

constexpr std::array<std::string_view, 8> kKinds = {"start",  "step",    "eval", "checkpoint",
                                                    "resume", "warning", "stop", "end"};

Json to_json(const EventValue& value) {
  return std::visit(
      [](const auto& data) -> Json {
        if constexpr (std::is_same_v<std::decay_t<decltype(data)>, double>) {
          if (std::isnan(data)) return "nan";
          if (std::isinf(data)) return data > 0 ? "inf" : "-inf";
        }
        return data;
      },
      value.data());
}

bool is_too_large(const Json& json) {
  return json.is_number_unsigned() && json.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()};
}

EventValue to_value(const std::string& name, const Json& json) {
  if (json.is_boolean()) return json.get<bool>();
  if (is_too_large(json)) return json.get<double>();
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  throw Error(fmt::format("\"{}\" is neither a number, a text, true nor false", name));
}

/// Throws Error or nlohmann's exception with the reason.
Event parse_line(std::string_view line) {
  const Json json = Json::parse(line);
  if (!json.is_object()) throw Error("not an object");
  Event event;
  const auto field = [&](const char* name, bool (Json::*is)() const noexcept, const char* kind) -> const Json& {
    const auto found = json.find(name);
    if (found == json.end() || !(*found.*is)()) throw Error(fmt::format("no {} \"{}\"", kind, name));
    return *found;
  };
  event.time = field("time", &Json::is_string, "text").get<std::string>();
  const Json& step = field("step", &Json::is_number_integer, "whole number");
  if (is_too_large(step)) throw Error(fmt::format("the step {} is too large", step.dump()));
  event.step = step.get<int64_t>();
  const std::string kind = field("kind", &Json::is_string, "text").get<std::string>();
  const auto known = std::find(kKinds.begin(), kKinds.end(), kind);
  if (known == kKinds.end()) throw Error(fmt::format("unknown kind \"{}\"", kind));
  event.kind = static_cast<EventKind>(known - kKinds.begin());
  for (const auto& [name, value] : field("values", &Json::is_object, "object").items()) {
    event.values.emplace_back(name, to_value(name, value));
  }
  return event;
}

bool is_whole(std::string_view line) {
  try {
    parse_line(line);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

/// A killed writer leaves a torn line, which would swallow the next one; or a whole one that misses only its newline.
void mend_end(AppendFile& file) {
  const std::string text = read_whole_file(file.path(), kMostBytes);
  if (text.empty() || text.back() == '\n') return;
  const size_t start = text.rfind('\n') + 1;  // npos + 1 is 0
  if (is_whole(std::string_view(text).substr(start))) {
    file.append("\n");
    return;
  }
  std::error_code failed;
  std::filesystem::resize_file(file.path(), start, failed);
  if (failed) throw SystemError(fmt::format("cut off the torn end of {}", file.path().string()), failed.value());
}

/// What a resume can take back.
bool belongs_to_step(EventKind kind) {
  return kind == EventKind::kStep || kind == EventKind::kEval || kind == EventKind::kCheckpoint;
}

void drop_superseded(EventHistory& history) {
  std::vector<bool> dropped(history.events.size());
  std::map<EventKind, std::map<int64_t, size_t>> last;  // of a kind: step to the place of its last event
  for (size_t i = 0; i < history.events.size(); ++i) {
    const Event& event = history.events[i];
    if (event.kind == EventKind::kResume) {
      for (auto& [kind, places] : last) {
        const auto beyond = places.upper_bound(event.step);
        for (auto place = beyond; place != places.end(); ++place) dropped[place->second] = true;
        places.erase(beyond, places.end());
      }
    } else if (belongs_to_step(event.kind)) {
      const auto [place, is_new] = last[event.kind].try_emplace(event.step, i);
      if (!is_new) dropped[std::exchange(place->second, i)] = true;
    }
  }
  std::vector<Event> kept;
  for (size_t i = 0; i < dropped.size(); ++i) {
    if (!dropped[i]) kept.push_back(std::move(history.events[i]));
  }
  history.num_superseded = dropped.size() - kept.size();
  history.events = std::move(kept);
}

}  // namespace

std::string_view to_string(EventKind kind) { return kKinds[static_cast<size_t>(kind)]; }

std::optional<double> EventValue::number() const {
  if (const auto* text = std::get_if<std::string>(&data_)) {
    if (*text == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (*text == "inf") return std::numeric_limits<double>::infinity();
    if (*text == "-inf") return -std::numeric_limits<double>::infinity();
    return std::nullopt;
  }
  if (const auto* value = std::get_if<bool>(&data_)) return *value ? 1 : 0;
  if (const auto* value = std::get_if<int64_t>(&data_)) return static_cast<double>(*value);
  return std::get<double>(data_);
}

const EventValue* Event::find(std::string_view name) const {
  for (const auto& [key, value] : values) {
    if (key == name) return &value;
  }
  return nullptr;
}

std::optional<double> Event::number(std::string_view name) const {
  const EventValue* const value = find(name);
  return value == nullptr ? std::nullopt : value->number();
}

std::string Event::text(std::string_view name) const {
  const EventValue* const value = find(name);
  return value == nullptr || value->text() == nullptr ? std::string() : *value->text();
}

EventLog::EventLog(const std::filesystem::path& path, Now now) : file_(File::append(path)), now_(std::move(now)) {
  mend_end(file_);
}

void EventLog::append(EventKind kind, int64_t step, const EventValues& values) {
  Json object = Json::object();
  for (const auto& [name, value] : values) object[name] = to_json(value);
  const std::lock_guard lock(mutex_);
  const Json line{{"time", format_utc(now_())}, {"step", step}, {"kind", to_string(kind)}, {"values", object}};
  // Texts come from anywhere, such as messages with paths: what is not UTF-8 is replaced, not thrown.
  file_.append(line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::vector<std::pair<double, double>> EventHistory::series(EventKind kind, std::string_view name) const {
  std::vector<std::pair<double, double>> points;
  for (const Event& event : events) {
    if (event.kind != kind) continue;
    if (const auto value = event.number(name)) points.emplace_back(static_cast<double>(event.step), *value);
  }
  std::stable_sort(points.begin(), points.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return points;
}

EventHistory parse_events(std::string_view text) {
  EventHistory history;
  for (size_t start = 0, number = 1; start < text.size(); ++number) {
    const size_t end = text.find('\n', start);
    const bool is_last = end == std::string_view::npos;
    const std::string_view line = text.substr(start, is_last ? end : end - start);
    start = is_last ? text.size() : end + 1;
    try {
      history.events.push_back(parse_line(line));
    } catch (const nlohmann::json::exception&) {
      if (is_last) {
        history.torn = true;
      } else {
        history.problems.push_back(fmt::format("line {}: not JSON: {}", number, cut_to_width(line, 40)));
      }
    } catch (const Error& error) {
      history.problems.push_back(fmt::format("line {}: {}", number, error.what()));
    }
  }
  drop_superseded(history);
  return history;
}

EventHistory read_events(const std::filesystem::path& path) {
  EventHistory history = parse_events(read_whole_file(path, kMostBytes));
  if (!history.problems.empty()) {
    log_warn("{}: {} of its lines cannot be read and do not count; the first is {}", path.string(),
             history.problems.size(), history.problems.front());
  }
  return history;
}

std::string format_utc(std::chrono::system_clock::time_point time) {
  const auto ms = std::chrono::floor<std::chrono::milliseconds>(time);
  const auto seconds = std::chrono::floor<std::chrono::seconds>(ms);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(seconds)),
                     (ms - seconds).count());
}

}  // namespace trireme
