#include "trireme/simulate/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/index.h"
#include "trireme/base/units.h"
#include "trireme/program/reduction_tree.h"
#include "trireme/simulate/collective_cost.h"

namespace trireme {
namespace {

/// An update that is not fused starts so many operators for each tensor of a block; Trireme's one for all of them.
constexpr double kPassesOfUpdate = 6, kTensorsOfBlock = 12;

/// Copies of its gradients that a replica of a stage needs, float32, to sum micro-batches along the tree.
int gradient_slots(const JobLayout& layout) {
  const int64_t micro_batches = layout.num_micro_batches() * layout.dp;
  int64_t leaves = derived_leaves(micro_batches);
  if (leaves % (layout.dp * layout.lanes) != 0) leaves = micro_batches;
  return schedule_leaves(static_cast<int>(leaves), {0, static_cast<int>(leaves / layout.dp)},
                         static_cast<int>(layout.lanes))
      .num_slots;
}

/// Of a replica of a stage at each turn: a micro-batch for each of its lanes, one after another.
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

/// That one rank of a stage sends at each turn.
double turn_bytes(const Job& job) { return message_bytes(job) * static_cast<double>(job.layout.lanes); }

/// Bytes of memory traffic that an update needs for each parameter: gradient (checked, clipped, read), float32 weight
/// and moments read and written, the weight of the compute type written; one pass, or one an operator.
double update_traffic(const Job& job, bool fused) {
  const StateBytes bytes = state_bytes(job.layout);
  const double states = 2 * (job.layout.optimizer_state + 4);
  return states + bytes.weights + (fused ? 3 : 9) * bytes.gradients;
}

/// The job as each stage has it; all alike unless stages have shapes of their own.
std::vector<Job> jobs_of_stages(const Job& job, int num_stages) {
  std::vector<Job> jobs;
  for (int stage = 0; stage < num_stages; ++stage) jobs.push_back({job.model, job.layout.of_stage(at(stage))});
  return jobs;
}

int64_t width_of(const JobLayout& layout) { return layout.tp * layout.cp * layout.dp; }

/// Devices that each rank of the pipeline stands for.
std::vector<int64_t> widths_of_ranks(const std::vector<Job>& jobs, const Schedule& schedule) {
  std::vector<int64_t> widths(at(schedule.num_ranks), 0);
  for (size_t stage = 0; stage < jobs.size(); ++stage) {
    widths[at(schedule.rank_of_stage[stage])] = width_of(jobs[stage].layout);
  }
  return widths;
}

/// The first device of each rank of the pipeline.
std::vector<int64_t> first_devices(const std::vector<Job>& jobs, const Schedule& schedule) {
  std::vector<int64_t> first;
  int64_t next = 0;
  for (const int64_t width : widths_of_ranks(jobs, schedule)) {
    first.push_back(next);
    next += width;
  }
  return first;
}

/// Seconds between neighbouring stages. Where these have different shapes, each of the fewer ranks sends or gets more.
std::vector<double> message_times(const std::vector<Job>& jobs, const Cluster& cluster, const Schedule& schedule) {
  const std::vector<int64_t> first = first_devices(jobs, schedule);
  const int64_t per_host = cluster.devices_per_host;
  std::vector<double> seconds;
  for (int stage = 0; stage < schedule.num_stages(); ++stage) {
    seconds.push_back(0);
    if (stage + 1 == schedule.num_stages()) break;
    const int64_t from = schedule.rank_of_stage[at(stage)], to = schedule.rank_of_stage[at(stage) + 1];
    if (from == to) continue;
    const bool same_host = first[at(from)] / per_host == first[at(to)] / per_host;
    const Job& job = jobs[at(stage) + 1];
    const double bytes = std::max(turn_bytes(jobs[at(stage)]), turn_bytes(job));
    seconds.back() = message_seconds(bytes, same_host ? 0 : per_host, cluster);
    if (job.layout.tp > 1 && !job.layout.sequence) {  // the parts become whole again
      seconds.back() +=
          collective_seconds(CollectiveKind::kAllGather, turn_bytes(job) * static_cast<double>(job.layout.tp),
                             group_on(cluster, job.layout.tp, 1), cluster);
    }
  }
  return seconds;
}

/// Seconds of a collective over the replicas, for each part of each stage.
class ReplicaCollectives {
 public:
  ReplicaCollectives(const Job& job, const Cluster& cluster) : job_(job), cluster_(cluster) {
    const JobLayout& layout = job.layout;
    dense_ = group_on(cluster, layout.num_replicas(), layout.tp);
    expert_ = group_on(cluster, layout.num_replicas() / layout.ep, layout.tp * layout.ep);
    sharers_ = group_on(cluster, layout.num_sharers(), layout.tp);
    copies_ = group_on(cluster, layout.num_replicas() / layout.num_sharers(), layout.tp * layout.num_sharers());
  }

  /// To or from parameter servers, each with a link of its own, and an equal share of the parameters: all devices at
  /// once, so that their links carry what these have, and a server's its share of everything.
  double server(const StagePart& part) const {
    const JobLayout& layout = job_.layout;
    const bool is_far = layout.num_devices() > cluster_.devices_per_host;
    const NetworkLink& link = is_far ? cluster_.between : cluster_.inside;
    const double bytes = part.parameters * layout.gradient_bytes() * layout.wire_factor;
    const double all = bytes * static_cast<double>(layout.num_devices());
    const double at_server = link.latency_us * 1e-6 + all / static_cast<double>(layout.servers) / link.effective();
    return std::max(message_seconds(bytes, is_far ? cluster_.devices_per_host : 0, cluster_), at_server);
  }

  double gather(const StagePart& part) const {
    const double bytes = bytes_of(job_.layout.compute);
    const double own = part.parameters * bytes / static_cast<double>(job_.layout.num_sharers());
    const double upload = job_.layout.offload_weights ? own / cluster_.device.offload_bandwidth : 0;
    if (job_.layout.zero_shards > 0) {
      return upload + collective_seconds(CollectiveKind::kAllGather, part.parameters * bytes, sharers_, cluster_);
    }
    return upload + both(part, CollectiveKind::kAllGather, bytes, 1);
  }
  double reduce(const StagePart& part) const {
    const JobLayout& layout = job_.layout;
    const double bytes = layout.gradient_bytes();
    if (layout.servers > 0) return server(part);
    if (layout.sparse_exchange) {
      return both(part, CollectiveKind::kAllGather, bytes, layout.wire_factor * static_cast<double>(dense_.size));
    }
    if (layout.zero_shards > 0) {  // each share is then summed over those who have the same
      const double all = part.parameters * bytes * layout.wire_factor;
      return collective_seconds(CollectiveKind::kReduceScatter, all, sharers_, cluster_) +
             collective_seconds(CollectiveKind::kAllReduce, all / static_cast<double>(layout.num_sharers()), copies_,
                                cluster_);
    }
    return both(part, layout.zero == 0 ? CollectiveKind::kAllReduce : CollectiveKind::kReduceScatter, bytes,
                layout.wire_factor);
  }

 private:
  double both(const StagePart& part, CollectiveKind kind, double bytes, double factor) const {
    const double dense = (part.parameters - part.expert_parameters) * bytes * factor;
    return collective_seconds(kind, dense, dense_, cluster_) +
           collective_seconds(kind, part.expert_parameters * bytes * factor, expert_, cluster_);
  }

  const Job& job_;
  const Cluster& cluster_;
  RankGroup dense_, expert_, sharers_, copies_;
};

/// The first and the last stage have the same embedding and sum its gradients.
double tied_seconds(const Job& job, int64_t distance, const Cluster& cluster) {
  if (!job.model.is_language() || !job.model.tied || job.layout.pp == 1) return 0;
  const double bytes =
      static_cast<double>(job.model.vocab * job.model.hidden / job.layout.tp) * job.layout.gradient_bytes();
  return message_seconds(bytes, distance, cluster);
}

std::vector<double> update_times(const std::vector<Job>& jobs, const Cluster& cluster,
                                 const std::vector<StageCost>& stages, const Schedule& schedule, bool fused) {
  // A measured cluster has it in its constants.
  const bool in_one = jobs.front().layout.as_trained && !cluster.stack.sums_in_tree;
  const double starts = in_one ? 1 : kTensorsOfBlock * (fused ? 1 : kPassesOfUpdate);
  const double start = starts * cluster.device.kernel_us * 1e-6;
  const double bandwidth = cluster.device.memory_bandwidth * cluster.device.update_efficiency;
  std::vector<double> seconds(at(schedule.num_ranks), cluster.device.step_seconds);
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    const Job& job = jobs[stage];
    const JobLayout& layout = job.layout;
    const double shares = layout.servers > 0 ? static_cast<double>(layout.servers)
                          : layout.zero >= 1 ? static_cast<double>(layout.num_sharers())
                                             : 1;
    const LayerRange& blocks = stages[stage].blocks;
    const double own = stages[stage].sum.parameters / shares;
    double& total = seconds[at(schedule.rank_of_stage[stage])];
    total += own * update_traffic(job, fused) / bandwidth + start * (blocks.last - blocks.first);
    if (layout.offload) total += own * 2 * state_bytes(layout).optimizer / cluster.device.offload_bandwidth;
    if (layout.servers > 0) {  // new weights are pulled before the next step
      const ReplicaCollectives collectives(job, cluster);
      for (const StagePart& part : stages[stage].parts) total += collectives.server(part);
    }
  }
  const int64_t distance = first_devices(jobs, schedule).back();
  seconds[at(schedule.rank_of_stage.front())] += tied_seconds(jobs.front(), distance, cluster);
  if (schedule.rank_of_stage.back() != schedule.rank_of_stage.front()) {
    seconds[at(schedule.rank_of_stage.back())] += tied_seconds(jobs.back(), distance, cluster);
  }
  return seconds;
}

/// Communication inside the passes of a rank that nothing hides.
double exposed_inside(const Simulation& s, int rank) {
  double seconds = 0;
  for (size_t stage = 0; stage < s.stages.size(); ++stage) {
    if (s.schedule.rank_of_stage[stage] == rank % s.schedule.num_ranks) seconds += s.stages[stage].exposed;
  }
  return seconds * static_cast<double>(s.job.layout.num_micro_batches());
}

/// What a rank works on between its first and its last computation. Schedules that update while micro-batches are under
/// way have updates there, for which the others wait no less than for computations.
double work_of(const PlayedRank& rank) { return rank.busy + rank.updates_between; }

/// The longest time of a rank in the pipeline, and how much longer that is than any of them works.
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

/// What of the bubble is left where messages and collectives take no time: the schedule's own. The rest waits for a
/// network.
double bubble_of_schedule(const std::vector<Program>& programs, PlayCosts costs, double bubble) {
  if (bubble <= 0) return 0;
  std::ranges::fill(costs.message, 0.0);
  for (auto* collectives : {&costs.gather, &costs.reduce}) {
    for (std::vector<double>& parts : *collectives) std::ranges::fill(parts, 0.0);
  }
  return std::min(bubble, pipeline_time(play(programs, costs)).bubble);
}

/// `bubble`: that of the schedule, in seconds. What is neither that, nor computing, nor the update, the rank waits for
/// communication: its own, or that of others that comes to its end after it.
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
  const auto micro_batches = static_cast<double>(s.job.layout.num_micro_batches());
  const double batches = micro_batches * static_cast<double>(s.job.layout.dp);
  for (const BlockCost& block : s.blocks) {
    s.model_flops += block.model_flops * batches;
    s.hardware_flops += (block.model_flops + block.repeated_flops) * batches;
  }
  const double samples = static_cast<double>(s.job.layout.global_batch);
  s.tokens_per_step = samples * (s.job.model.is_language() ? static_cast<double>(s.job.model.seq) : 1);
}

/// Of a stage's weights, that it holds at once: schedules that update while micro-batches are under way keep those that
/// these have begun with.
double weight_versions(const JobLayout& layout, int stage) {
  switch (layout.schedule) {
    case ScheduleKind::kPipeDream:
      return static_cast<double>(std::min(layout.pp - stage, layout.num_micro_batches()));
    case ScheduleKind::kPipeDreamSync:
      return static_cast<double>(std::min(layout.pp, layout.num_micro_batches()));
    case ScheduleKind::kPipeDream2Bw:
      return 2;
    default:
      return 1;
  }
}

/// As the layout says, or as it is cut where it does not.
Partition stages_of(const Job& job, const std::vector<BlockCost>& blocks, int num_stages) {
  const std::vector<StageShape>& given = job.layout.stages;
  if (given.empty()) return cut_into_stages(blocks, job, num_stages);
  const int count = static_cast<int>(blocks.size());
  if (given.back().blocks.last == 0) {  // shapes alone: more blocks for more devices
    std::vector<double> speeds;
    for (size_t i = 0; i < given.size(); ++i) {
      speeds.push_back(static_cast<double>(width_of(job.layout.of_stage(i))));
    }
    return cut_into_stages(blocks, job, num_stages, std::move(speeds));
  }
  if (static_cast<int>(given.size()) != num_stages || given.back().blocks.last != count) {
    throw UsageError(
        fmt::format("{} of {} are given, for {} of a model of {}", counted(std::ssize(given), "stage"),
                    counted(given.back().blocks.last, "block"), counted(num_stages, "stage"), counted(count, "block")),
        "parallel.split must name all of them");
  }
  Partition cut;
  for (const StageShape& stage : given) cut.push_back(stage.blocks);
  return cut;
}

}  // namespace

Simulation simulate(const Job& job, const Cluster& cluster, bool fold) {
  if (!job.layout.shares.empty()) return simulate_mix(job, {cluster});
  cluster.check();
  job.check();
  cluster.hosts_for(job.layout.num_devices());
  const JobLayout& layout = job.layout;
  Simulation s;
  s.job = job;
  s.cluster = cluster;
  s.parameters = total_parameters(job.model);
  s.blocks = block_costs(job, cluster);
  // Where stages are comes from the schedule, its times from the stages: the order of zb-v alone depends on both.
  StageTimes times;
  s.schedule = schedule_of(job, times);
  const std::vector<Job> jobs = jobs_of_stages(job, s.schedule.num_stages());
  const Partition cut = stages_of(job, s.blocks, s.schedule.num_stages());
  const bool own_runtime = cluster.stack.sums_in_tree;
  const double bucket =
      own_runtime
          ? bucket_of_own_runtime(layout, total_parameters(job.model) / static_cast<double>(layout.tp * layout.pp))
          : layout.bucket_bytes;
  for (size_t stage = 0; stage < jobs.size(); ++stage) {
    const std::vector<BlockCost> own = jobs[stage].layout == layout ? s.blocks : block_costs(jobs[stage], cluster);
    s.stages.push_back(times_lanes(stage_costs(own, {cut[stage]}, bucket, layout.gradient_bytes()).front(),
                                   static_cast<double>(jobs[stage].layout.lanes)));
  }
  PlayCosts costs;
  costs.stages = s.stages;
  costs.message = message_times(jobs, cluster, s.schedule);
  if (layout.schedule == ScheduleKind::kZbV) {
    for (const StageCost& stage : s.stages) {
      times.forward.push_back(stage.sum.forward * 1e3);
      times.backward.push_back(stage.sum.backward_input * 1e3);
      times.weight.push_back(stage.sum.backward_weight * 1e3);
    }
    for (const double seconds : costs.message) times.comm.push_back(seconds * 1e3);
    s.schedule = schedule_of(job, times);
  }
  for (size_t n = 0; n < s.stages.size(); ++n) {
    const ReplicaCollectives collectives(jobs[n], cluster);
    // Each lane has passes of its own, for which weights come, and whose gradients go.
    const auto lanes = static_cast<double>(jobs[n].layout.lanes);
    const double gathers = layout.zero == 3 ? lanes : 1, sums = layout.zero >= 2 ? lanes : 1;
    std::vector<double> gather, reduce;
    for (const StagePart& part : s.stages[n].parts) {
      gather.push_back(gathers * collectives.gather(part));
      reduce.push_back(sums * collectives.reduce(part));
    }
    costs.gather.push_back(std::move(gather));
    costs.reduce.push_back(std::move(reduce));
  }
  // Software that has fused attention is of a later generation, which fuses the update and overlaps as well.
  const bool later = uses_flash(job, cluster);
  costs.update =
      update_times(jobs, cluster, s.stages, s.schedule, cluster.stack.fused_update || later || layout.as_trained);
  costs.overlap = layout.overlap.value_or(cluster.stack.overlaps_gradients || later);
  costs.overlap_messages = cluster.stack.overlaps_messages || later;
  s.programs = lower_step(job, s.stages, s.schedule, fold);
  if (cluster.shared_cores > 0) {
    costs.cores = static_cast<double>(cluster.hosts_for(layout.num_devices()) * cluster.shared_cores);
    costs.sharing_cost = cluster.sharing_cost;
    const auto replicas = static_cast<double>(s.programs.size()) / static_cast<double>(s.schedule.num_ranks);
    for (const int64_t width : widths_of_ranks(jobs, s.schedule)) {
      costs.processes.push_back(static_cast<double>(width) / replicas);
    }
  }
  std::vector<PlayedRank> played = play(s.programs, costs);
  const PipelineTime pipeline = pipeline_time(played);
  if (pipeline.seconds > 0) s.bubble_fraction = pipeline.bubble / pipeline.seconds;
  for (size_t rank = 0; rank < played.size(); ++rank) {
    std::vector<const StageCost*> own;
    const std::vector<int> own_stages = s.programs[rank].own_stages();
    for (const int stage : own_stages) own.push_back(&s.stages[at(stage)]);
    RankMemory memory = static_memory(jobs[at(own_stages.front())], own, own_runtime);
    memory.weights *= weight_versions(layout, own_stages.front());
    memory.activations = played[rank].peak_activation_bytes;
    memory.buffers += cluster.stack.fixed_bytes;
    const int64_t tp = jobs[at(own_stages.front())].layout.tp;
    if (tp > 1) memory.buffers += cluster.stack.tensor_rank_bytes * static_cast<double>(tp);
    const double copies = own_runtime ? 4.0 * (gradient_slots(jobs[at(own_stages.front())].layout) - 1) : 0;
    double longest_tensor = 0;
    for (const StageCost* stage : own) {
      memory.buffers += (cluster.stack.parameter_bytes + copies) * stage->sum.parameters;
      longest_tensor = std::max(longest_tensor, stage->longest_tensor);
    }
    memory.buffers += cluster.stack.tensor_bytes * longest_tensor;
    s.ranks.push_back({memory, std::move(played[rank])});
  }
  summarise(s);
  s.parts = parts_of_step(s, bubble_of_schedule(s.programs, std::move(costs), pipeline.bubble));
  return s;
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
  const std::vector<int64_t>& shares = job.layout.shares;
  const auto replicas = static_cast<size_t>(job.layout.dp) / kinds.size();
  if (replicas * kinds.size() != static_cast<size_t>(job.layout.dp)) {
    throw UsageError(
        fmt::format("dp = {} replicas cannot be split over {} kinds of hosts", job.layout.dp, kinds.size()),
        "every kind has whole replicas, as many as the others");
  }
  std::optional<Simulation> slowest;
  double memory_bytes = 1e300;
  std::string name, device;
  std::array<double, 4> peaks = {};  // of the mean device
  for (size_t n = 0; n < kinds.size(); ++n) {
    Job own = job;
    if (!shares.empty()) {  // a kind waits for the replica that has most to do
      const auto first = shares.begin() + static_cast<std::ptrdiff_t>(n * replicas);
      const int64_t most = *std::max_element(first, first + static_cast<std::ptrdiff_t>(replicas));
      own.layout.shares.clear();
      own.layout.global_batch = most * job.layout.micro_batch * job.layout.dp;
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
