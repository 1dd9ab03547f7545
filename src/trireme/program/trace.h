// Traces of a step: what each rank did, instruction by instruction, with times; merged into one file that shows the
// predicted timeline next to the measured one.
//
// Each rank writes times of its own clock, and that clock's offset from rank 0's. Plain data, no threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/program/timeline.h"

namespace trireme {

/// Times of one instruction, in seconds of the rank's clock.
struct InstructionTimes {
  double start = 0;
  double ready = 0;  ///< end of its wait for a message; equals start if it did not wait
  double end = 0;
  bool operator==(const InstructionTimes&) const = default;
};

/// A kernel or a copy on a GPU, in seconds of the rank's clock.
struct DeviceWork {
  std::string name;
  int64_t stream = 0;
  double start = 0, end = 0;
  bool operator==(const DeviceWork&) const = default;
};

struct StepTrace {
  int rank = 0;     ///< global rank
  int replica = 0;  ///< replica of the model
  int place = 0;    ///< coordinate along tp
  int64_t step = 0;
  double clock_offset = 0;  ///< seconds to add to get rank 0's time
  Program program;
  std::vector<InstructionTimes> times;  ///< one per instruction; 0 for the ones that ran inside a backward pass
  std::vector<DeviceWork> device;       ///< work on the rank's GPU
  bool operator==(const StepTrace&) const = default;
};

std::string trace_to_json(const StepTrace& trace);
/// Throws UsageError that says what is wrong with the text.
StepTrace trace_from_json(std::string_view json);

/// One replica's step: the measured timeline, and the one predicted from the measured mean times. If stages differ in
/// their replicas, one report covers the step of all ranks.
struct TraceReport {
  int64_t step = 0;
  int replica = 0;
  double measured_ms = 0, predicted_ms = 0;  ///< time from the first computation's start to the last one's end
  double measured_bubble = 0, predicted_bubble = 0;
  StageTimes times;  ///< measured means
  std::vector<Program> programs;
  std::vector<int> ranks;  ///< global rank of each program
  Timeline measured, predicted;
};
/// `traces`: of all ranks, in any order. With tensor parallelism, the ranks at place 0 stand for all. Throws UsageError
/// if ranks are missing.
std::vector<TraceReport> report_traces(const std::vector<StepTrace>& traces);

/// How much of a GPU's communication overlapped with computation.
struct DeviceReport {
  int64_t step = 0;
  int rank = 0;
  double computing_ms = 0;  ///< time in which the busiest stream worked
  double moving_ms = 0;     ///< time in which other streams worked, without copies to and from the host
  double hidden_ms = 0;     ///< part of moving_ms in which the busiest stream worked, too
};
/// One report per trace that has GPU work.
std::vector<DeviceReport> report_devices(const std::vector<StepTrace>& traces);

/// Events for Perfetto and chrome://tracing: one process per rank, with measured and predicted timelines.
std::string traces_to_chrome(const std::vector<StepTrace>& traces, const std::vector<TraceReport>& reports);

}  // namespace trireme
