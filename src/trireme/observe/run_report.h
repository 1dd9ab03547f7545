// The report of a run folder: of a run that has ended, that was killed, or that is still going on.
//
// All of it comes from events.jsonl, config.toml and what lies in checkpoints/; docs/runs.md lists the values. Logs of
// older versions lack some, which leaves those parts of the page out.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "trireme/observe/report.h"
#include "trireme/observe/run_folder.h"

namespace trireme {

enum class RunState {
  kFinished,  ///< all steps are done
  kStopped,   ///< asked to; the state was saved
  kFailed,    ///< with an error that is in its events
  kRunning,   ///< a process holds its lock
  kEnded,     ///< without a word: killed, or its error is on the screen of whoever started it
};
std::string_view to_string(RunState state);

struct RunStory {
  RunReport report;
  RunState state = RunState::kEnded;
  int64_t step = 0;          ///< the last one that is told of
  int64_t steps_wanted = 0;  ///< 0: not known
  std::optional<double> training_loss, held_out_loss;
  double seconds = 0;     ///< of all processes, each from its start to its last event
  int64_t num_parts = 0;  ///< processes: 1, and one more for each resume
};

/// Reads the folder; nothing in it changes. Throws UsageError where it is none of a run, SystemError where a file
/// cannot be read.
RunStory story_of_run(const RunPaths& run);

}  // namespace trireme
