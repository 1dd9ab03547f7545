#include "trireme/simulate/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/index.h"
#include "trireme/base/units.h"
#include "trireme/program/memory.h"
#include "trireme/program/reduction_tree.h"
#include "trireme/simulate/step_costs.h"

namespace trireme {
namespace {

/// Number of float32 gradient slots that a replica of a stage needs to sum micro-batches along the tree.
int gradient_slots(const Layout& layout) {
  int64_t leaves = layout.num_leaves();
  if (!layout.has_leaves() || leaves % (layout.dp * layout.lanes) != 0) leaves = layout.micro_batches();
  return schedule_leaves(static_cast<int>(leaves), {0, static_cast<int>(leaves / layout.dp)},
                         static_cast<int>(layout.lanes))
      .num_slots;
}

/// Cost of one turn of a replica of a stage: one micro-batch per lane, one after another.
StageCost times_lanes(StageCost cost, double lanes) {
  const auto multiply = [&](StagePart& part) {
    part.forward *= lanes;
    part.backward_input *= lanes;
    part.backward_weight *= lanes;
  };
  for (StagePart& part : cost.parts) multiply(part);
  multiply(cost.sum);
  cost.exposed *= lanes;
  cost.activation_bytes *= lanes;
  return cost;
}

/// Exposed communication inside a rank's passes.
double exposed_inside(const Simulation& s, int rank) {
  double seconds = 0;
  for (size_t stage = 0; stage < s.stages.size(); ++stage) {
    if (s.schedule.rank_of_stage[stage] == rank % s.schedule.num_ranks) seconds += s.stages[stage].exposed;
  }
  return seconds * static_cast<double>(s.job.layout.accumulation());
}

/// Busy time of a rank between its first and its last computation. Asynchronous schedules update in between, and other
/// ranks wait for these updates as for computations.
double work_of(const PlayedRank& rank) { return rank.busy + rank.updates_between; }

/// The longest time that a rank spends in the pipeline, and by how much it exceeds the busiest rank's work.
struct PipelineTime {
  double seconds = 0, bubble = 0;
};

PipelineTime pipeline_time(const std::vector<PlayedRank>& ranks) {
  PipelineTime time;
  double most = 0;
  for (const PlayedRank& rank : ranks) {
    time.seconds = std::max(time.seconds, work_of(rank) + rank.idle);
    most = std::max(most, work_of(rank));
  }
  time.bubble = std::max(0.0, time.seconds - most);
  return time;
}

/// The schedule's own part of the bubble: what remains if messages and collectives take no time. The rest is waiting
/// for the network.
double bubble_of_schedule(const std::vector<Program>& programs, PlayCosts costs, double bubble) {
  if (bubble <= 0) return 0;
  std::ranges::fill(costs.message, 0.0);
  for (auto* exchanges : {&costs.gather, &costs.reduce, &costs.push}) {
    for (std::vector<double>& parts : *exchanges) std::ranges::fill(parts, 0.0);
  }
  for (auto* exchanges : {&costs.values, &costs.combine, &costs.pull, &costs.meet}) std::ranges::fill(*exchanges, 0.0);
  return std::min(bubble, pipeline_time(play(programs, costs)).bubble);
}

/// `bubble`: the schedule's own bubble, in seconds. What is neither bubble, computing nor the update counts as
/// communication: the rank's own, or that of ranks that finish later.
StepParts parts_of_step(const Simulation& s, double bubble) {
  const PlayedRank& rank = s.ranks[at(s.busiest)].played;
  const double inside = exposed_inside(s, s.busiest), rest = s.step_seconds - rank.busy - rank.update;
  StepParts parts;
  parts.computing = rank.busy - inside;
  parts.bubble = std::clamp(rest, 0.0, bubble);
  parts.communication = inside + std::max(0.0, rest - parts.bubble);
  parts.update = rank.update;
  return parts;
}

void summarise(Simulation& s) {
  double fullest = 0;
  for (size_t rank = 0; rank < s.ranks.size(); ++rank) {
    const PlayedRank& played = s.ranks[rank].played;
    s.step_seconds = std::max(s.step_seconds, played.end - played.first);
    if (work_of(played) > work_of(s.ranks[at(s.busiest)].played)) s.busiest = static_cast<int>(rank);
    if (s.ranks[rank].memory.sum() > fullest) {
      fullest = s.ranks[rank].memory.sum();
      s.fullest = static_cast<int>(rank);
    }
  }
  const auto micro_batches = static_cast<double>(s.job.layout.accumulation());
  const double batches = micro_batches * static_cast<double>(s.job.layout.dp);
  for (const BlockCost& block : s.blocks) {
    s.model_flops += block.model_flops * batches;
    s.hardware_flops += (block.model_flops + block.repeated_flops) * batches;
  }
  const double samples = static_cast<double>(s.job.layout.global_batch);
  s.tokens_per_step = samples * (s.job.model.is_language() ? static_cast<double>(s.job.model.seq) : 1);
}

/// The layout's partition, or cut_into_stages() if it has none.
Partition stages_of(const Job& job, const std::vector<BlockCost>& blocks, int num_stages) {
  const Partition& given = job.layout.split;
  if (given.empty()) {
    std::vector<double> speeds;  // stages with more devices get more blocks
    for (size_t i = 0; i < job.layout.stages.size(); ++i) {
      speeds.push_back(static_cast<double>(width_of(job.layout.of_stage(i))));
    }
    return cut_into_stages(blocks, job, num_stages, std::move(speeds));
  }
  const int count = static_cast<int>(blocks.size());
  if (static_cast<int>(given.size()) == num_stages && given.back().last == count) return given;
  throw UsageError(
      fmt::format("{} of {} are given, for {} of a model of {}", counted(std::ssize(given), "stage"),
                  counted(given.back().last, "block"), counted(num_stages, "stage"), counted(count, "block")),
      "parallel.split must name all of them");
}

/// Number of partial sums of a bucket that a replica pushes. The servers add them along the tree.
double pushed_partials(const Program& program) {
  const bool adds_first = !program.update.has_servers() || program.update.sums_own() || program.across.direct;
  return adds_first ? 1 : static_cast<double>(std::ranges::max(program.across.partials_of_rank));
}

/// Stage times in ms, to which schedules with depends_on_times() fit their order.
StageTimes times_of(const PlayCosts& costs) {
  StageTimes times;
  for (const StageCost& stage : costs.stages) {
    times.forward.push_back(stage.sum.forward * 1e3);
    times.backward.push_back(stage.sum.backward_input * 1e3);
    times.weight.push_back(stage.sum.backward_weight * 1e3);
  }
  for (const double seconds : costs.message) times.comm.push_back(seconds * 1e3);
  return times;
}

class StepSimulator {
 public:
  StepSimulator(const Job& job, const Cluster& cluster) : does_(behaviour_of(job, cluster)) {
    s_.job = job;
    s_.cluster = cluster;
    s_.parameters = total_parameters(job.model);
  }

  Simulation run(bool fold) {
    cost();
    lower(fold);
    std::vector<PlayedRank> played = play(s_.programs, costs_);
    const PipelineTime pipeline = pipeline_time(played);
    if (pipeline.seconds > 0) s_.bubble_fraction = pipeline.bubble / pipeline.seconds;
    for (size_t rank = 0; rank < played.size(); ++rank) {
      const RankMemory memory = memory_of(rank, played[rank]);
      s_.ranks.push_back({memory, std::move(played[rank])});
    }
    summarise(s_);
    s_.parts = parts_of_step(s_, bubble_of_schedule(s_.programs, std::move(costs_), pipeline.bubble));
    return std::move(s_);
  }

 private:
  void cost() {
    const Layout& layout = s_.job.layout;
    s_.blocks = block_costs(s_.job, s_.cluster);
    // The placement of stages comes from the schedule, stage times from the stages. Only the order of zb-v depends on
    // the times.
    s_.schedule = schedule_of(layout);
    const int num_stages = s_.schedule.num_stages();
    const Partition cut = stages_of(s_.job, s_.blocks, num_stages);
    const double bucket = bucket_bytes_of(layout, s_.parameters, does_.has_own_runtime);
    for (int stage = 0; stage < num_stages; ++stage) {
      const Job& job = jobs_.emplace_back(s_.job.of_stage(at(stage)));
      const std::vector<BlockCost> own = job.layout == layout ? s_.blocks : block_costs(job, s_.cluster);
      s_.stages.push_back(times_lanes(stage_costs(own, {cut[at(stage)]}, bucket, layout.gradient_bytes()).front(),
                                      static_cast<double>(job.layout.lanes)));
    }
    costs_ = step_costs(jobs_, s_.cluster, s_.stages, s_.schedule);
    if (depends_on_times(layout.schedule)) s_.schedule = schedule_of(layout, times_of(costs_));
  }

  void lower(bool fold) {
    s_.shape = played_shape(s_.job, s_.stages, s_.schedule, fold);
    s_.programs = programs_of(s_.shape, fold ? std::optional(0) : std::nullopt);
    for (std::vector<double>& parts : costs_.push) {
      for (double& seconds : parts) seconds *= pushed_partials(s_.programs.front());
    }
    const Cluster& cluster = s_.cluster;
    if (cluster.shared_cores == 0) return;
    costs_.cores = static_cast<double>(cluster.hosts_for(s_.job.layout.num_devices()) * cluster.shared_cores);
    costs_.sharing_cost = cluster.sharing_cost;
    const auto replicas = static_cast<double>(s_.programs.size()) / static_cast<double>(s_.schedule.num_ranks);
    for (const int64_t width : widths_of_ranks(jobs_, s_.schedule)) {
      costs_.processes.push_back(static_cast<double>(width) / replicas);
    }
  }

  RankMemory memory_of(size_t rank, const PlayedRank& played) const {
    const std::vector<int> stages = s_.schedule.stages_of(s_.programs[rank].pipeline_rank);
    std::vector<const StageCost*> own;
    for (const int stage : stages) own.push_back(&s_.stages[at(stage)]);
    const Job& job = jobs_[at(stages.front())];
    const Stack& stack = s_.cluster.stack;
    RankMemory memory = static_memory(job, own, does_.has_own_runtime);
    if (job.layout.is_asynchronous()) memory.weights *= peak_memory(s_.programs[rank]).weight_versions;
    memory.activations = played.peak_activation_bytes;
    memory.buffers += stack.fixed_bytes;
    if (job.layout.tp > 1) memory.buffers += stack.tensor_rank_bytes * static_cast<double>(job.layout.tp);
    const double copies = does_.has_own_runtime ? 4.0 * (gradient_slots(job.layout) - 1) : 0;
    double longest_tensor = 0;
    for (const StageCost* stage : own) {
      memory.buffers += (stack.parameter_bytes + copies) * stage->sum.parameters;
      longest_tensor = std::max(longest_tensor, stage->longest_tensor);
    }
    memory.buffers += stack.tensor_bytes * longest_tensor;
    return memory;
  }

  const Behaviour does_;
  Simulation s_;
  std::vector<Job> jobs_;  ///< the job with each stage's layout; equal unless stages differ in shape
  PlayCosts costs_;
};

}  // namespace

Simulation simulate(const Job& job, const Cluster& cluster, bool fold) {
  if (!job.layout.batch_parts.empty()) return simulate_mix(job, {cluster});
  cluster.check();
  job.check();
  cluster.hosts_for(job.layout.num_devices());
  return StepSimulator(job, cluster).run(fold);
}

Cluster in_mix(Cluster kind, int64_t num_devices, size_t num_kinds) {
  if (num_kinds == 1) return kind;
  const int64_t own = num_devices / static_cast<int64_t>(num_kinds);
  kind.hosts_for(own);
  kind.devices_per_host = static_cast<int>(std::clamp<int64_t>(own, 1, kind.devices_per_host));
  kind.num_hosts = 0;
  return kind;
}

Simulation simulate_mix(const Job& job, const std::vector<Cluster>& kinds) {
  job.check();
  const std::vector<int64_t>& batch_parts = job.layout.batch_parts;
  const int64_t parts = std::accumulate(batch_parts.begin(), batch_parts.end(), int64_t{0});
  const auto replicas = static_cast<size_t>(job.layout.dp) / kinds.size();
  if (replicas * kinds.size() != static_cast<size_t>(job.layout.dp)) {
    throw UsageError(
        fmt::format("dp = {} replicas cannot be split over {} kinds of hosts", job.layout.dp, kinds.size()),
        "every kind has whole replicas, as many as the others");
  }
  std::optional<Simulation> slowest;
  double memory_bytes = 1e300;
  std::string name, device;
  std::array<double, 4> peaks = {};  // mean over devices
  for (size_t n = 0; n < kinds.size(); ++n) {
    Job own = job;
    if (!batch_parts.empty()) {  // a kind waits for its replica with the largest batch part
      const auto first = batch_parts.begin() + static_cast<std::ptrdiff_t>(n * replicas);
      const int64_t most = *std::max_element(first, first + static_cast<std::ptrdiff_t>(replicas));
      own.layout.batch_parts.clear();
      own.layout.global_batch = most * job.layout.global_batch / parts * job.layout.dp;
    }
    Simulation played = simulate(own, in_mix(kinds[n], job.layout.num_devices(), kinds.size()));
    const auto whole = static_cast<double>(job.layout.global_batch) / static_cast<double>(own.layout.global_batch);
    for (double* sum : {&played.tokens_per_step, &played.model_flops, &played.hardware_flops}) *sum *= whole;
    memory_bytes = std::min(memory_bytes, kinds[n].device.memory_bytes);
    for (const auto& [sum, part] : {std::pair{&name, &kinds[n].name}, {&device, &kinds[n].device.name}}) {
      *sum += (n > 0 ? "+" : "") + *part;
    }
    for (size_t type = 0; type < peaks.size(); ++type) {
      peaks[type] += kinds[n].device.peak_flops[type] / static_cast<double>(kinds.size());
    }
    if (!slowest || played.step_seconds > slowest->step_seconds) slowest = std::move(played);
  }
  slowest->job = job;
  if (kinds.size() > 1) slowest->kinds = kinds;
  slowest->cluster.device.memory_bytes = memory_bytes;
  slowest->cluster.name = name;
  slowest->cluster.device.name = device;
  slowest->cluster.device.peak_flops = peaks;
  if (kinds.size() > 1) slowest->cluster.evidence = {};
  return std::move(*slowest);
}

}  // namespace trireme
