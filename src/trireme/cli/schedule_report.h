// What `trireme schedule` says of a schedule: in the terminal, as JSON, as a picture.
#pragma once

#include <string>

#include "trireme/program/check/check.h"
#include "trireme/program/schedules/schedule.h"
#include "trireme/program/timeline.h"

namespace trireme::cli {

/// A schedule that was found good, with all that is known of it.
struct CheckedSchedule {
  std::string name;
  Schedule schedule;
  StageTimes times;
  std::vector<Program> programs;  ///< of one replica
  CheckReport report;
  Timeline timeline;
};

/// Lowers, checks and times it. Throws Error for a schedule that cannot run.
CheckedSchedule check_schedule(std::string name, Schedule schedule, const StageTimes& times, bool recompute,
                               const CheckOptions& options);

/// "4 stages, 8 micro-batches: makespan 27 ms, bubble 11.1 %"
std::string headline(const CheckedSchedule& checked);
/// Drawing and table, in the colours and the width that stdout has.
std::string terminal_report(const CheckedSchedule& checked);
std::string json_report(const CheckedSchedule& checked);
std::string svg_report(const CheckedSchedule& checked);

}  // namespace trireme::cli
