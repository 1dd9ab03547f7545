#include "trireme/program/trace.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/program/draw.h"
#include "trireme/program/pipeline.h"

namespace trireme {
namespace {

/// What ranks would write whose clocks differ and whose computations take exactly the times of `times`.
std::vector<StepTrace> perfect_traces(const std::vector<Program>& programs, const StageTimes& times) {
  const Timeline timeline = make_timeline(programs, times);
  std::vector<StepTrace> traces;
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    StepTrace trace;
    trace.rank = static_cast<int>(rank);
    trace.step = 4;
    trace.clock_offset = 100.0 * static_cast<double>(rank);
    trace.program = programs[rank];
    size_t next = 0;
    double now = 1000 - trace.clock_offset;
    for (const Instruction& instruction : programs[rank].instructions) {
      if (!is_compute(instruction.op)) {
        trace.times.push_back({now, now, now});
        continue;
      }
      const Span& span = timeline.ranks[rank].spans[next++];
      const double zero = 1000 - trace.clock_offset;
      trace.times.push_back({now, zero + span.start_ms / 1000, zero + span.end_ms / 1000});
      now = trace.times.back().end;
    }
    traces.push_back(trace);
  }
  return traces;
}

std::vector<Program> programs_of(const char* kind, int ranks, int micro_batches) {
  return lower_pipeline_ranks(
      {.schedule =
           make_schedule({.kind = schedule_kind(kind), .num_ranks = ranks, .num_micro_batches = micro_batches})});
}

TEST(Trace, APictureOfMeasuredTimesHasNoMemoryThatNobodyMeasured) {
  const std::vector<Program> programs = programs_of("1f1b", 2, 4);
  const StageTimes times = StageTimes::equal(2, 1, 1, 1, 0);
  const auto has = [](const std::string& svg, const char* text) { return svg.find(text) != std::string::npos; };
  const TraceReport report = report_traces(perfect_traces(programs, times)).back();
  const std::string measured = draw_svg(report.measured, report.programs, "measured");
  EXPECT_FALSE(has(measured, "activations held") || has(measured, "peak 0"));
  const std::string predicted = draw_svg(make_timeline(programs, times), programs, "predicted");
  EXPECT_TRUE(has(predicted, "activations held") && has(predicted, "peak 2"));
}

TEST(Trace, PerfectRunsAreAsPredicted) {
  for (const char* kind : {"gpipe", "1f1b", "zb-h1", "interleaved"}) {
    const std::vector<Program> programs = programs_of(kind, 3, 6);
    const StageTimes times = StageTimes::equal(programs[0].num_stages(), 2, 1.5, 1.5, 0);
    const std::vector<TraceReport> reports = report_traces(perfect_traces(programs, times));
    ASSERT_EQ(reports.size(), 1u);
    EXPECT_NEAR(reports[0].measured_ms, make_timeline(programs, times).makespan_ms, 1e-6) << kind;
    EXPECT_NEAR(reports[0].measured_ms, reports[0].predicted_ms, 1e-6) << kind;
    EXPECT_NEAR(reports[0].measured_bubble, reports[0].predicted_bubble, 1e-9) << kind;
    EXPECT_NEAR(reports[0].times.forward[0], 2, 1e-6);
  }
}

TEST(Trace, TextComesBack) {
  for (const StepTrace& trace : perfect_traces(programs_of("1f1b", 2, 3), StageTimes::equal(2, 1, 1, 1, 0))) {
    EXPECT_EQ(trace_from_json(trace_to_json(trace)), trace);
  }
}

TEST(Trace, MistakesAreSaid) {
  std::vector<StepTrace> traces = perfect_traces(programs_of("1f1b", 3, 3), StageTimes::equal(3, 1, 1, 1, 0));
  const std::string text = trace_to_json(traces[0]);
  traces.pop_back();
  EXPECT_THROW(report_traces(traces), UsageError);
  EXPECT_THROW(trace_from_json("{"), UsageError);
  EXPECT_THROW(trace_from_json("{}"), UsageError);
  EXPECT_THROW(trace_from_json(text.substr(0, text.size() / 2)), UsageError);
  for (int Instruction::*const number : {&Instruction::stage, &Instruction::micro_batch}) {
    StepTrace beyond = traces[0];
    beyond.program.instructions[0].*number = 3;
    EXPECT_THROW(trace_from_json(trace_to_json(beyond)), UsageError);
  }
  traces[0].times.pop_back();
  EXPECT_THROW(trace_from_json(trace_to_json(traces[0])), UsageError);
}

TEST(Trace, ChromeHasAProcessForEachRank) {
  const std::vector<StepTrace> traces = perfect_traces(programs_of("1f1b", 2, 3), StageTimes::equal(2, 1, 1, 1, 0));
  const auto json = nlohmann::json::parse(traces_to_chrome(traces, report_traces(traces)));
  int measured = 0, predicted = 0;
  for (const auto& event : json.at("traceEvents")) {
    if (event.at("ph") == "M") continue;
    EXPECT_GE(event.at("ts").get<double>(), -1e-3);
    if (event.at("cat") == "predicted") ++predicted;
    if (event.at("cat") == "measured" && event.at("name").get<std::string>().starts_with("Forward")) ++measured;
  }
  EXPECT_EQ(measured, 6);
  EXPECT_EQ(predicted, 12);
}

TEST(Trace, TellsWhatAGpuHides) {
  StepTrace trace;
  trace.rank = 1;
  trace.step = 7;
  // Two kernels overlap in part on the busiest stream; one gather is inside, one half outside, one apart.
  trace.device = {{"product", 7, 0.010, 0.020},    {"product", 7, 0.018, 0.030}, {"gather", 21, 0.012, 0.016},
                  {"gather", 21, 0.028, 0.032},    {"sum", 22, 0.040, 0.041},    {"sum", 22, 0.013, 0.014},
                  {"Memcpy HtoD", 9, 0.000, 0.050}};
  const std::vector<DeviceReport> reports = report_devices({StepTrace(), trace});
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].step, 7);
  EXPECT_EQ(reports[0].rank, 1);
  EXPECT_NEAR(reports[0].computing_ms, 20, 1e-9);
  EXPECT_NEAR(reports[0].moving_ms, 9, 1e-9);
  EXPECT_NEAR(reports[0].hidden_ms, 6, 1e-9);

  std::vector<StepTrace> traces = perfect_traces(programs_of("1f1b", 2, 3), StageTimes::equal(2, 1, 1, 1, 0));
  traces[0].device = trace.device;
  EXPECT_EQ(trace_from_json(trace_to_json(traces[0])), traces[0]);
  const auto chrome = nlohmann::json::parse(traces_to_chrome(traces, report_traces(traces)));
  const auto& events = chrome.at("traceEvents");
  EXPECT_EQ(std::count_if(events.begin(), events.end(), [](const auto& e) { return e.value("cat", "") == "device"; }),
            7);
}

}  // namespace
}  // namespace trireme
