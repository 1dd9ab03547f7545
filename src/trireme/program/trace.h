// What ranks did in a step, instruction by instruction, with times; merged into one file, the predicted timeline beside
// the measured one.
//
// Each rank writes its own clock's times and how far that clock is from rank 0's. Plain data, no threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/program/timeline.h"

namespace trireme {

/// Of one instruction, in seconds.
struct InstructionTimes {
  double start = 0;
  double ready = 0;  ///< until here it has waited for a message
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
  int rank = 0;     ///< of the world
  int replica = 0;  ///< of the model
  int place = 0;    ///< along tp
  int64_t step = 0;
  double clock_offset = 0;  ///< seconds to be added to get rank 0's time
  Program program;
  std::vector<InstructionTimes> times;  ///< one an instruction; those that ran inside a backward pass have none (0)
  std::vector<DeviceWork> device;       ///< of the rank's GPU
  bool operator==(const StepTrace&) const = default;
};

std::string trace_to_json(const StepTrace& trace);
/// Throws UsageError that says what is wrong with the text.
StepTrace trace_from_json(std::string_view json);

/// One replica's step (of stages with different replicas: all that they did), measured, and as the timeline has it with
/// the mean times that were measured.
struct TraceReport {
  int64_t step = 0;
  int replica = 0;
  double measured_ms = 0, predicted_ms = 0;  ///< from the first start to the last end of a computation
  double measured_bubble = 0, predicted_bubble = 0;
  StageTimes times;  ///< means of what was measured
  std::vector<Program> programs;
  std::vector<int> ranks;  ///< whose programs they are
  Timeline measured, predicted;
};
/// The traces of all ranks, in any order. Of tensor parallelism the first place stands for all. Throws UsageError where
/// ranks are missing.
std::vector<TraceReport> report_traces(const std::vector<StepTrace>& traces);

/// How much of what a rank's GPU sent, gathered and summed it did beside computing.
struct DeviceReport {
  int64_t step = 0;
  int rank = 0;
  double computing_ms = 0;  ///< while the busiest stream worked
  double moving_ms = 0;     ///< while others did; copies from and to the host do not count
  double hidden_ms = 0;     ///< of these, while the busiest stream worked, too
};
/// Of traces with work of a GPU.
std::vector<DeviceReport> report_devices(const std::vector<StepTrace>& traces);

/// Events for Perfetto and chrome://tracing: a process for each rank, with what was measured and what was predicted.
std::string traces_to_chrome(const std::vector<StepTrace>& traces, const std::vector<TraceReport>& reports);

}  // namespace trireme
