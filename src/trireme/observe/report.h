// The report of a run: one HTML page, for people, that needs nothing else.
//
// Everything is optional: what is empty leaves its part of the page out. All text is escaped. Any number of steps:
// charts keep the lowest and the highest value of each column of pixels.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/observe/draw/page.h"
#include "trireme/observe/event_log.h"

namespace trireme {

struct RunReport {
  using Points = std::vector<std::pair<double, double>>;  ///< (step, value)
  using Rows = std::vector<std::pair<std::string, std::string>>;
  struct Checkpoint {
    int64_t step = 0;
    std::string path;
    std::optional<uint64_t> num_bytes;
    std::optional<double> seconds;  ///< to write it
    std::string note;               ///< such as "verified"
  };
  struct Incident {
    std::string time;
    int64_t step = 0;
    std::string kind, message;
  };

  std::string title;
  std::string verdict;  ///< two or three words: "Learnt it."
  Tone tone = Tone::kNeutral;
  std::string summary;  ///< one paragraph after the verdict
  Rows facts;           ///< few numbers in large letters: name, value

  Points training_loss, held_out_loss;
  std::optional<double> target_loss;  ///< of the held-out loss
  Points speed;
  std::string speed_unit = "tok";  ///< per second
  Points learning_rate;
  std::vector<std::pair<std::string, double>> step_parts;  ///< name, seconds of a mean step

  Rows settings;       ///< the important ones: key, value
  std::string config;  ///< all of it, as TOML
  std::vector<Checkpoint> checkpoints;
  size_t num_removed_checkpoints = 0;  ///< that have given way to these
  std::vector<Incident> incidents;
};

/// Puts what a log holds into the parts that it knows: curves, parts of a step, checkpoints, incidents. docs/runs.md
/// lists the names of the values. Parts that the log is silent about stay as they are. The first step of a process also
/// finds memory and shapes, and counts neither as speed nor in the parts of a step, where there are others.
void add_events(RunReport& report, const EventHistory& history);

std::string to_html(const RunReport& report);
/// Replaces the file at once: a reader never sees half a page. Throws SystemError.
void write_report(const std::filesystem::path& path, const RunReport& report);

}  // namespace trireme
