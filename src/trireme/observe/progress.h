// One line that shows how far a long job is:
//
//    step   120/600  ███▏            4,980 tok/s  loss 1.412  48 s left
//
// On a terminal it is drawn over itself, ten times a second at most; elsewhere a plain line comes every ten seconds.
// Owner: the caller; the destructor ends the line. Threads: one at a time. Never throws for a failing write.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/base/deadline.h"

namespace trireme {

struct ProgressOptions {
  std::string label;
  uint64_t total = 0;        ///< 0: not known; then there is no bar and no time left
  uint64_t first = 0;        ///< done before this line began; does not count for the rate
  std::string unit;          ///< of the rate, such as "tok"; no rate if empty
  double units_per_one = 1;  ///< such as the tokens of a step
  bool vanishes = false;     ///< finish() leaves no last line
  int fd = 2;
  // For tests; by default the truth.
  std::function<Clock::time_point()> now = Clock::now;
  std::optional<bool> terminal;
  std::optional<bool> colour;
  std::optional<int> width;
};

class Progress {
 public:
  explicit Progress(ProgressOptions options);
  ~Progress();
  Progress(const Progress&) = delete;

  /// `note` is shown as it is, such as "loss 1.412". Cheap when nothing is due.
  void update(uint64_t done, std::string_view note = {});
  /// Shows the last state and ends the line. Later calls do nothing.
  void finish();

 private:
  struct Sample {
    Clock::time_point at;
    uint64_t done;
  };
  std::string line(bool last) const;
  void draw(Clock::time_point now, bool last);
  double rate() const;

  ProgressOptions options_;
  bool terminal_, colour_;
  uint64_t done_ = 0;
  std::string note_;
  Clock::time_point start_, drawn_;
  bool started_ = false, finished_ = false;
  std::deque<Sample> samples_;  // of the last seconds: the rate is that of now, not of the whole job
};

/// `fraction` of `width` columns in eighths: "███▏    ".
std::string progress_bar(double fraction, int width);

}  // namespace trireme
