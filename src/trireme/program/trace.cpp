#include "trireme/program/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/program/text.h"

namespace trireme {
namespace {

/// Mean of measurements, by stage; 0 where there are none.
class Means {
 public:
  explicit Means(size_t num_stages) : sums_(num_stages, 0.0), counts_(num_stages, 0) {}
  void add(size_t stage, double ms) {
    sums_[stage] += ms;
    ++counts_[stage];
  }
  std::vector<double> values() const {
    std::vector<double> means;
    for (size_t i = 0; i < sums_.size(); ++i) means.push_back(counts_[i] == 0 ? 0 : sums_[i] / counts_[i]);
    return means;
  }

 private:
  std::vector<double> sums_;
  std::vector<int> counts_;
};

/// A whole backward pass is one measurement; half of it counts as the inputs' part, which leaves the sum unchanged.
StageTimes mean_times(const std::vector<const StepTrace*>& ranks) {
  const auto num_stages = static_cast<size_t>(ranks[0]->program.num_stages());
  Means forward(num_stages), backward(num_stages), weight(num_stages);
  for (const StepTrace* trace : ranks) {
    for (size_t i = 0; i < trace->times.size(); ++i) {
      const Instruction& instruction = trace->program.instructions[i];
      const size_t stage = instruction.stage_index();
      const double ms = 1000 * (trace->times[i].end - trace->times[i].ready);
      if (instruction.op == OpCode::kForward) forward.add(stage, ms);
      if (instruction.op == OpCode::kBackwardInput) backward.add(stage, ms);
      if (instruction.op == OpCode::kWeightGrad) weight.add(stage, ms);
      if (instruction.op == OpCode::kBackward) {
        backward.add(stage, ms / 2);
        weight.add(stage, ms / 2);
      }
    }
  }
  return {forward.values(), backward.values(), weight.values(), std::vector<double>(num_stages, 0.0)};
}

Timeline measured_timeline(const std::vector<const StepTrace*>& ranks) {
  Timeline timeline;
  double first = 0, last = 0;
  bool any = false;
  for (const StepTrace* trace : ranks) {
    RankTimeline line;
    double repeated = 0;
    for (size_t i = 0; i < trace->times.size(); ++i) {
      const Instruction& instruction = trace->program.instructions[i];
      if (!is_compute(instruction.op)) continue;
      const double start = 1000 * (trace->times[i].ready + trace->clock_offset);
      const double end = 1000 * (trace->times[i].end + trace->clock_offset);
      line.spans.push_back({instruction, start, end, 0});
      line.busy_ms += end - start;
      if (instruction.op == OpCode::kRecompute) repeated += end - start;
      first = any ? std::min(first, start) : start;
      last = any ? std::max(last, end) : end;
      any = true;
    }
    if (!line.spans.empty()) {
      timeline.cost_ms = std::max(timeline.cost_ms, line.spans.back().end_ms - line.spans.front().start_ms);
    }
    timeline.ideal_ms = std::max(timeline.ideal_ms, line.busy_ms - repeated);
    timeline.ranks.push_back(std::move(line));
  }
  for (RankTimeline& line : timeline.ranks) {
    for (Span& span : line.spans) {
      span.start_ms -= first;
      span.end_ms -= first;
    }
  }
  timeline.makespan_ms = last - first;
  timeline.bubble_rate = timeline.cost_ms > 0 ? (timeline.cost_ms - timeline.ideal_ms) / timeline.cost_ms : 0;
  return timeline;
}

Json event(const std::string& name, const char* category, int process, int thread, double start_us, double us) {
  return {{"name", name},  {"cat", category}, {"ph", "X"}, {"pid", process},
          {"tid", thread}, {"ts", start_us},  {"dur", us}};
}

Json name_of_thread(int process, int thread, const std::string& name) {
  return {{"name", "thread_name"}, {"ph", "M"}, {"pid", process}, {"tid", thread}, {"args", {{"name", name}}}};
}

/// Sorted, disjoint time intervals.
using Stretches = std::vector<std::pair<double, double>>;

Stretches joined(Stretches stretches) {
  std::sort(stretches.begin(), stretches.end());
  Stretches all;
  for (const auto& [start, end] : stretches) {
    if (!all.empty() && start <= all.back().second) {
      all.back().second = std::max(all.back().second, end);
    } else {
      all.emplace_back(start, end);
    }
  }
  return all;
}

double length(const Stretches& stretches) {
  double sum = 0;
  for (const auto& [start, end] : stretches) sum += end - start;
  return sum;
}

/// Length of the intersection: |a| + |b| - |a ∪ b|.
double length_of_both(const Stretches& a, const Stretches& b) {
  Stretches either = a;
  either.insert(either.end(), b.begin(), b.end());
  return length(a) + length(b) - length(joined(std::move(either)));
}

bool is_copy_of_host(const std::string& name) {
  return name.starts_with("Memcpy HtoD") || name.starts_with("Memcpy DtoH");
}

}  // namespace

std::string trace_to_json(const StepTrace& trace) {
  Json times = Json::array();
  for (const InstructionTimes& each : trace.times) times.push_back({each.start, each.ready, each.end});
  Json device = Json::array();
  for (const DeviceWork& work : trace.device) device.push_back({work.name, work.stream, work.start, work.end});
  const Json json = {{"rank", trace.rank},
                     {"replica", trace.replica},
                     {"place", trace.place},
                     {"step", trace.step},
                     {"clock_offset", trace.clock_offset},
                     {"program", Json::parse(program_to_json(trace.program))},
                     {"times", std::move(times)},
                     {"device", std::move(device)}};
  return json.dump();
}

StepTrace trace_from_json(std::string_view text) {
  StepTrace trace;
  try {
    const Json json = Json::parse(text);
    trace.rank = json.at("rank").get<int>();
    trace.replica = json.at("replica").get<int>();
    trace.place = json.at("place").get<int>();
    trace.step = json.at("step").get<int64_t>();
    trace.clock_offset = json.at("clock_offset").get<double>();
    trace.program = program_from_json(json.at("program").dump());
    for (const Json& each : json.at("times")) {
      trace.times.push_back({each.at(0).get<double>(), each.at(1).get<double>(), each.at(2).get<double>()});
    }
    for (const Json& each : json.value("device", Json::array())) {
      trace.device.push_back({each.at(0).get<std::string>(), each.at(1).get<int64_t>(), each.at(2).get<double>(),
                              each.at(3).get<double>()});
    }
  } catch (const Json::exception& error) {
    throw UsageError(fmt::format("this is no trace: {}", error.what()), "observe.trace_steps makes a run write traces");
  }
  if (trace.times.size() != trace.program.instructions.size()) {
    throw UsageError(fmt::format("a trace of rank {} has {} times for {} instructions", trace.rank, trace.times.size(),
                                 trace.program.instructions.size()));
  }
  const int num_stages = std::max(1, trace.program.num_stages());
  for (const Instruction& each : trace.program.instructions) {
    if (each.stage < num_stages && each.micro_batch < trace.program.num_micro_batches) continue;
    throw UsageError(
        fmt::format("a trace of rank {} has an instruction of stage {} and micro-batch {}, but there are "
                    "{} stages and {} micro-batches",
                    trace.rank, each.stage, each.micro_batch, num_stages, trace.program.num_micro_batches));
  }
  return trace;
}

std::vector<TraceReport> report_traces(const std::vector<StepTrace>& traces) {
  std::map<std::pair<int64_t, int>, std::vector<const StepTrace*>> steps;
  for (const StepTrace& trace : traces) {
    const bool in_lanes = !trace.program.replicas_of_rank.empty();  // then replicas do not form separate pipelines
    if (trace.place == 0) steps[{trace.step, in_lanes ? 0 : trace.replica}].push_back(&trace);
  }
  std::vector<TraceReport> reports;
  for (auto& [key, ranks] : steps) {
    std::sort(ranks.begin(), ranks.end(), [](const StepTrace* a, const StepTrace* b) {
      return std::pair(a->program.pipeline_rank, a->replica) < std::pair(b->program.pipeline_rank, b->replica);
    });
    const Program& program = ranks[0]->program;
    const int expected = program.replicas_of_rank.empty()
                             ? program.num_pipeline_ranks
                             : std::accumulate(program.replicas_of_rank.begin(), program.replicas_of_rank.end(), 0);
    if (static_cast<int>(ranks.size()) != expected) {
      throw UsageError(fmt::format("step {} of replica {} was traced by {} of {} ranks of the pipeline", key.first,
                                   key.second, ranks.size(), expected),
                       "bring the trace folders of all machines together");
    }
    TraceReport report;
    report.step = key.first;
    report.replica = key.second;
    report.times = mean_times(ranks);
    for (const StepTrace* trace : ranks) {
      report.programs.push_back(trace->program);
      report.ranks.push_back(trace->rank);
    }
    report.measured = measured_timeline(ranks);
    if (ranks[0]->program.is_pipeline()) {
      report.predicted = make_timeline(report.programs, report.times);
    } else {
      report.predicted = report.measured;  // without a pipeline, a rank computes without waiting
      report.predicted.makespan_ms = report.predicted.cost_ms = report.measured.ideal_ms;
      report.predicted.bubble_rate = 0;
    }
    report.measured_ms = report.measured.makespan_ms;
    report.predicted_ms = report.predicted.makespan_ms;
    report.measured_bubble = report.measured.bubble_rate;
    report.predicted_bubble = report.predicted.bubble_rate;
    reports.push_back(std::move(report));
  }
  return reports;
}

std::vector<DeviceReport> report_devices(const std::vector<StepTrace>& traces) {
  std::vector<DeviceReport> reports;
  for (const StepTrace& trace : traces) {
    if (trace.device.empty()) continue;
    std::map<int64_t, Stretches> streams;
    for (const DeviceWork& work : trace.device) {
      if (!is_copy_of_host(work.name)) streams[work.stream].emplace_back(work.start, work.end);
    }
    int64_t busiest = 0;
    Stretches computing, moving;
    for (auto& [stream, stretches] : streams) {
      stretches = joined(std::move(stretches));
      if (length(stretches) <= length(computing)) continue;
      computing = stretches;
      busiest = stream;
    }
    for (const auto& [stream, stretches] : streams) {
      if (stream != busiest) moving.insert(moving.end(), stretches.begin(), stretches.end());
    }
    moving = joined(std::move(moving));
    reports.push_back({trace.step, trace.rank, 1000 * length(computing), 1000 * length(moving),
                       1000 * length_of_both(computing, moving)});
  }
  return reports;
}

std::string traces_to_chrome(const std::vector<StepTrace>& traces, const std::vector<TraceReport>& reports) {
  double first = std::numeric_limits<double>::infinity();
  for (const StepTrace& trace : traces) {
    if (!trace.times.empty()) first = std::min(first, trace.times[0].start + trace.clock_offset);
  }
  enum Thread { kMeasured = 1, kWaits = 2, kPredicted = 3, kFirstStream = 10 };
  Json events = Json::array();
  std::map<int, bool> named;
  std::set<std::pair<int, int>> streams;             // already named
  std::map<std::pair<int64_t, int>, double> starts;  // by step and rank: first computation
  for (const StepTrace& trace : traces) {
    const double offset = trace.clock_offset - first;
    if (!std::exchange(named[trace.rank], true)) {
      events.push_back({{"name", "process_name"},
                        {"ph", "M"},
                        {"pid", trace.rank},
                        {"args", {{"name", fmt::format("rank {}", trace.rank)}}}});
      events.push_back(name_of_thread(trace.rank, kMeasured, "measured"));
      events.push_back(name_of_thread(trace.rank, kWaits, "waits for messages"));
      events.push_back(name_of_thread(trace.rank, kPredicted, "predicted"));
    }
    double begin = -1;
    for (size_t i = 0; i < trace.times.size(); ++i) {
      const InstructionTimes& t = trace.times[i];
      if (t.end <= 0) continue;
      const std::string name = trace.program.instructions[i].to_string();
      const double ready = 1e6 * (t.ready + offset);
      if (is_compute(trace.program.instructions[i].op) && begin < 0) begin = ready;
      events.push_back(event(name, "measured", trace.rank, kMeasured, ready, 1e6 * (t.end - t.ready)));
      if (t.ready > t.start) {
        events.push_back(
            event("wait", "wait", trace.rank, kWaits, 1e6 * (t.start + offset), 1e6 * (t.ready - t.start)));
      }
    }
    for (const DeviceWork& work : trace.device) {
      const int thread = kFirstStream + static_cast<int>(work.stream);
      if (streams.insert({trace.rank, thread}).second) {
        events.push_back(name_of_thread(trace.rank, thread, fmt::format("GPU, stream {}", work.stream)));
      }
      events.push_back(
          event(work.name, "device", trace.rank, thread, 1e6 * (work.start + offset), 1e6 * (work.end - work.start)));
    }
    starts[{trace.step, trace.rank}] = begin;
  }
  for (const TraceReport& report : reports) {
    for (size_t i = 0; i < report.predicted.ranks.size(); ++i) {
      const int rank = report.ranks[i];
      const double zero = starts.at({report.step, report.ranks[0]});
      for (const Span& span : report.predicted.ranks[i].spans) {
        events.push_back(event(span.instruction.to_string(), "predicted", rank, kPredicted, zero + 1e3 * span.start_ms,
                               1e3 * (span.end_ms - span.start_ms)));
      }
    }
  }
  return Json{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}.dump();
}

}  // namespace trireme
