#include "trireme/observe/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <vector>

#include "trireme/base/log.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/observe/style.h"

namespace trireme {
namespace {

using namespace std::chrono_literals;

constexpr auto kRedraw = 100ms;
constexpr auto kPlainLine = 10s;
constexpr auto kSampleEvery = 250ms;
constexpr size_t kMaxSamples = 40;  // ten seconds of frequent updates
constexpr int kBarWidth = 20, kSmallestBar = 6;

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

std::string progress_bar(double fraction, int width) {
  static constexpr std::string_view kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  // Full only when it is: rounding down.
  const double clean = std::isfinite(fraction) ? std::clamp(fraction, 0.0, 1.0) : 0;
  const int eighths = static_cast<int>(clean * width * 8);
  std::string bar;
  for (int i = 0; i < eighths / 8; ++i) bar += "█";
  bar += kEighths[eighths % 8];
  const int used = eighths / 8 + (eighths % 8 != 0 ? 1 : 0);
  return bar + std::string(static_cast<size_t>(width - used), ' ');
}

Progress::Progress(ProgressOptions options)
    : options_(std::move(options)),
      terminal_(options_.terminal.value_or(is_terminal(options_.fd))),
      colour_(options_.colour.value_or(has_colour(options_.fd))) {
  start_ = drawn_ = options_.now();
  samples_.push_back({start_, options_.first});
}

Progress::~Progress() {
  try {
    finish();
  } catch (...) {  // out of memory for a line: leave it
  }
}

void Progress::update(uint64_t done, std::string_view note) {
  if (finished_) return;
  const Clock::time_point now = options_.now();
  done_ = done;
  if (now - samples_.back().at >= kSampleEvery) {
    samples_.push_back({now, done});
    if (samples_.size() > kMaxSamples) samples_.pop_front();
  }
  const bool due = terminal_ ? !started_ || now - drawn_ >= kRedraw : now - drawn_ >= kPlainLine;
  note_.assign(note);
  if (due) draw(now, false);
}

void Progress::finish() {
  if (finished_) return;
  finished_ = true;
  if (options_.vanishes) {
    if (started_ && terminal_) write_all(options_.fd, "\r\x1b[K");
    set_log_wipes_line(false);
    return;
  }
  // Nothing was ever shown or done: no line. A short job without a terminal still gets its last one.
  if (started_ || done_ > 0) draw(options_.now(), true);
}

double Progress::rate() const {
  const Clock::time_point now = options_.now();
  const Sample& oldest = finished_ ? Sample{start_, options_.first} : samples_.front();
  const double seconds = std::chrono::duration<double>(now - oldest.at).count();
  if (seconds <= 0 || done_ <= oldest.done) return 0;
  return static_cast<double>(done_ - oldest.done) / seconds;
}

std::string Progress::line(bool last) const {
  const double per_second = rate();
  std::vector<std::string> parts;
  std::string count = format_count(static_cast<int64_t>(done_));
  if (options_.total > 0) {
    const std::string total = format_count(static_cast<int64_t>(options_.total));
    count = fmt::format("{:>{}}/{}", count, total.size(), total);
  }
  parts.push_back(options_.label.empty() ? count : options_.label + " " + count);
  const bool has_bar = terminal_ && options_.total > 0;
  const double fraction = options_.total > 0 ? double(done_) / double(options_.total) : 0;
  if (!terminal_ && options_.total > 0) parts.push_back(fmt::format("{:.0f} %", std::floor(100 * fraction)));
  if (!options_.unit.empty() && per_second > 0) {
    parts.push_back(format_rate(per_second * options_.units_per_one, options_.unit));
  }
  if (!note_.empty()) parts.push_back(note_);
  if (last) {
    parts.push_back(format_duration(std::chrono::duration<double>(options_.now() - start_).count()));
  } else if (options_.total > done_ && per_second > 0) {
    parts.push_back(format_time_left(double(options_.total - done_) / per_second));
  }
  if (!terminal_) return join(parts, "  ");

  // The bar gives way first, then the end of the line. The last column stays free: some terminals wrap there.
  const int columns = options_.width.value_or(terminal_width(options_.fd)) - 1;
  if (has_bar) {
    const int room = columns - display_width(join(parts, "  ")) - 2;
    if (const int width = std::min(kBarWidth, room); width >= kSmallestBar) {
      parts.insert(parts.begin() + 1, emphasised(progress_bar(fraction, width), Emphasis::kCyan, colour_));
    }
  }
  return cut_to_width(join(parts, "  "), columns);
}

void Progress::draw(Clock::time_point now, bool last) {
  const std::string text = line(last);
  started_ = true;
  drawn_ = now;
  if (!terminal_) {
    write_all(options_.fd, text + "\n");
    return;
  }
  set_log_wipes_line(!last);
  write_all(options_.fd, "\r" + text + "\x1b[K" + (last ? "\n" : ""));
}

}  // namespace trireme
