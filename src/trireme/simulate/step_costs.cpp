#include "trireme/simulate/step_costs.h"

#include <algorithm>
#include <bit>

#include "trireme/base/index.h"
#include "trireme/simulate/collective_cost.h"
#include "trireme/simulate/memory_model.h"

namespace trireme {
namespace {

/// An unfused update launches kPassesOfUpdate operators per tensor of a block; Trireme's launches one for all tensors.
constexpr double kPassesOfUpdate = 6, kTensorsOfBlock = 12;

/// Bytes that a rank of a stage sends per turn.
double turn_bytes(const Job& job) { return message_bytes(job) * static_cast<double>(job.layout.lanes); }

/// Memory traffic of an update in bytes per parameter: the gradient is checked, clipped and read, float32 weight and
/// moments are read and written, the weight in the compute dtype is written. Unfused, each operator is a pass over the
/// gradient.
double update_traffic(const Job& job, bool fused) {
  const StateBytes bytes = state_bytes(job);
  const double states = 2 * (job.layout.optimizer_state + 4);
  return states + bytes.weights + (fused ? 3 : 9) * bytes.gradients;
}

/// Seconds of messages between neighbouring stages. If the stages differ in shape, the ranks of the smaller one send or
/// receive more.
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
    if (job.layout.tp > 1 && !job.layout.sequence) {  // the shards are gathered
      seconds.back() +=
          collective_seconds(CollectiveKind::kAllGather, turn_bytes(job) * static_cast<double>(job.layout.tp),
                             group_on(cluster, job.layout.tp, 1), cluster);
    }
  }
  return seconds;
}

/// Parameters of the tied embedding; 0: the output layer has its own.
double tied_parameters(const Job& job) {
  if (!job.model.is_language() || !job.model.tied) return 0;
  return static_cast<double>(job.model.vocab * job.model.hidden / job.layout.tp);
}

/// Seconds of a stage's exchanges between replicas or with parameter servers.
class ReplicaExchanges {
 public:
  ReplicaExchanges(const Job& job, const Cluster& cluster) : job_(job), cluster_(cluster) {
    const Layout& layout = job.layout;
    dense_ = group_on(cluster, layout.num_replicas(), layout.tp);
    expert_ = group_on(cluster, layout.num_replicas() / layout.ep, layout.tp * layout.ep);
    shard_group_ = group_on(cluster, layout.num_shards(), layout.tp);
    copies_ = group_on(cluster, layout.num_replicas() / layout.num_shards(), layout.tp * layout.num_shards());
  }

  /// Pushes a part's gradients. Synchronous servers get the gradients of both uses of a tied weight, unless replicas
  /// add them for compression. `has_first_use`: the part holds the embedding.
  double push(const StagePart& part, bool has_first_use) const {
    const Layout& layout = job_.layout;
    const bool adds_uses = layout.exchange != GradientExchange::kServers || layout.compression != Method::kNone;
    const double second_use = has_first_use && !adds_uses && !layout.is_pipeline() ? tied_parameters(job_) : 0;
    return server((part.parameters + second_use) * layout.gradient_bytes() * layout.wire_factor);
  }
  /// Pulls a part's float32 weights. The last stage of a pipeline receives its tied weight from the first stage
  /// instead.
  double pull(const StagePart& part, bool has_second_use) const {
    const double tied = has_second_use && job_.layout.is_pipeline() ? tied_parameters(job_) : 0;
    return server((part.parameters - tied) * kWeightBytes);
  }
  /// All-reduces the step's values: loss and stop flag. If each replica has a norm of its own, the norms are
  /// all-reduced, too.
  double values() const {
    const GradientExchange exchange = job_.layout.exchange;
    const bool sums_norms = exchange == GradientExchange::kLocal || exchange == GradientExchange::kAsyncServers;
    return (sums_norms ? 2 : 1) * collective_seconds(CollectiveKind::kAllReduce, kValuesBytes, dense_, cluster_);
  }
  double combine(const StageCost& stage) const {
    if (job_.layout.exchange == GradientExchange::kMomenta) return packed_sum(stage.sum);
    double seconds = 0;
    for (const StagePart& part : stage.parts) seconds += adasum(part.parameters);
    return seconds;
  }
  /// Averages weights, amortized over the steps between meetings. Trireme averages float32 weights in host memory, to
  /// and from which a GPU copies them.
  double meet(const StageCost& stage) const {
    const Layout& layout = job_.layout;
    const bool is_packed = layout.exchange_bytes < kWeightBytes;
    const bool has_gpu = cluster_.device.units > 1, copies = has_gpu && job_.software != Software::kPublished;
    const double copied = copies && !layout.offload ? 2 * stage.sum.parameters * kWeightBytes : 0;
    const double sum =
        is_packed ? packed_sum(stage.sum) : both(stage.sum, CollectiveKind::kAllReduce, layout.exchange_bytes, 1);
    return (sum + copied / cluster_.device.offload_bandwidth) / static_cast<double>(layout.meet_every);
  }

  double gather(const StagePart& part) const {
    const double bytes = bytes_of(job_.layout.compute);
    const double own = part.parameters * bytes / static_cast<double>(job_.layout.num_shards());
    const double upload = job_.layout.offload_weights ? own / cluster_.device.offload_bandwidth : 0;
    if (job_.layout.zero_shards > 0) {
      return upload + collective_seconds(CollectiveKind::kAllGather, part.parameters * bytes, shard_group_, cluster_);
    }
    return upload + both(part, CollectiveKind::kAllGather, bytes, 1);
  }
  double reduce(const StagePart& part) const {
    const Layout& layout = job_.layout;
    const double bytes = layout.gradient_bytes();
    if (layout.sparse_exchange) {
      return both(part, CollectiveKind::kAllGather, bytes, layout.wire_factor * static_cast<double>(dense_.size));
    }
    if (layout.zero_shards > 0) {  // each shard is then all-reduced over the ranks that hold a copy of it
      const double all = part.parameters * bytes * layout.wire_factor;
      return collective_seconds(CollectiveKind::kReduceScatter, all, shard_group_, cluster_) +
             collective_seconds(CollectiveKind::kAllReduce, all / static_cast<double>(layout.num_shards()), copies_,
                                cluster_);
    }
    return both(part, layout.zero == 0 ? CollectiveKind::kAllReduce : CollectiveKind::kReduceScatter, bytes,
                layout.wire_factor);
  }

 private:
  static constexpr double kWeightBytes = 4, kValuesBytes = 8;
  /// Arrays that combining a pair reads or writes: 4 for three dot products, 3 for the weighted sum, 2 for the copy
  /// that one of the partners makes.
  static constexpr double kPassesOfPair = 9;

  /// Sends to or receives from parameter servers, which have a link and an equal shard of the parameters each. All
  /// devices communicate at once: a device's link carries its own bytes, a server's link the bytes of its shard for all
  /// devices.
  double server(double bytes) const {
    const Layout& layout = job_.layout;
    const bool is_far = layout.num_devices() > cluster_.devices_per_host;
    const NetworkLink& link = is_far ? cluster_.between : cluster_.inside;
    const double all = bytes * static_cast<double>(layout.num_devices());
    const double at_server = link.latency_us * 1e-6 + all / static_cast<double>(layout.servers) / link.effective();
    return std::max(message_seconds(bytes, is_far ? cluster_.devices_per_host : 0, cluster_), at_server);
  }

  /// Adasum (compress/adasum.h): partners 1, 2, 4, … replicas apart exchange whole gradients and combine them. Replicas
  /// beyond the largest power of two first send theirs to a partner, and finally receive the result.
  double adasum(double parameters) const {
    const int64_t replicas = job_.layout.num_replicas(), stride = job_.layout.tp;
    const auto paired = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(replicas)));
    const double bytes = parameters * job_.layout.exchange_bytes;
    const double pair = kPassesOfPair * bytes / (cluster_.device.memory_bandwidth * cluster_.device.memory_efficiency);
    double seconds = 0;
    for (int64_t distance = 1; distance < paired; distance *= 2) {
      seconds += message_seconds(bytes, distance * stride, cluster_) + pair;
    }
    if (replicas > paired) seconds += 2 * message_seconds(bytes, paired * stride, cluster_) + pair;
    return seconds;
  }

  /// Packed all-reduce (compress/block_sum.h): an all-to-all of packed parts, of which each rank sums its own, then an
  /// all-gather of the packed sums.
  double packed_sum(const StagePart& part) const {
    const double bytes = job_.layout.exchange_bytes;
    return both(part, CollectiveKind::kAllToAll, bytes, 1) + both(part, CollectiveKind::kAllGather, bytes, 1);
  }

  double both(const StagePart& part, CollectiveKind kind, double bytes, double factor) const {
    const double dense = (part.parameters - part.expert_parameters) * bytes * factor;
    return collective_seconds(kind, dense, dense_, cluster_) +
           collective_seconds(kind, part.expert_parameters * bytes * factor, expert_, cluster_);
  }

  const Job& job_;
  const Cluster& cluster_;
  RankGroup dense_, expert_, shard_group_, copies_;
};

/// Seconds to add the gradients of a tied embedding, which the first and the last stage hold.
double tied_seconds(const Job& job, int64_t distance, const Cluster& cluster) {
  const double bytes = tied_parameters(job) * job.layout.gradient_bytes();
  return bytes == 0 || job.layout.pp == 1 ? 0 : message_seconds(bytes, distance, cluster);
}

std::vector<double> update_times(const std::vector<Job>& jobs, const Cluster& cluster,
                                 const std::vector<StageCost>& stages, const Schedule& schedule,
                                 const Behaviour& does) {
  const double starts = does.updates_all_in_one ? 1 : kTensorsOfBlock * (does.fuses_update ? 1 : kPassesOfUpdate);
  const double start = starts * cluster.device.kernel_us * 1e-6;
  const double bandwidth = cluster.device.memory_bandwidth * cluster.device.update_efficiency;
  std::vector<double> seconds(at(schedule.num_ranks), cluster.device.step_seconds);
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    const Job& job = jobs[stage];
    const Layout& layout = job.layout;
    const double batch_parts = layout.servers > 0 ? static_cast<double>(layout.servers)
                               : layout.zero >= 1 ? static_cast<double>(layout.num_shards())
                                                  : 1;
    const LayerRange& blocks = stages[stage].blocks;
    // Asynchronous servers update once per replica.
    const bool updates_each = layout.exchange == GradientExchange::kAsyncServers;
    const double updates = updates_each ? static_cast<double>(layout.num_replicas()) : 1;
    const double own = updates * stages[stage].sum.parameters / batch_parts;
    double& total = seconds[at(schedule.rank_of_stage[stage])];
    total += own * update_traffic(job, does.fuses_update) / bandwidth + start * (blocks.last - blocks.first);
    if (layout.offload) total += own * 2 * state_bytes(job).optimizer / cluster.device.offload_bandwidth;
  }
  const int64_t distance = first_devices(jobs, schedule).back();
  seconds[at(schedule.rank_of_stage.front())] += tied_seconds(jobs.front(), distance, cluster);
  if (schedule.rank_of_stage.back() != schedule.rank_of_stage.front()) {
    seconds[at(schedule.rank_of_stage.back())] += tied_seconds(jobs.back(), distance, cluster);
  }
  return seconds;
}

/// Adds the exchanges of stage `number`. Each lane has its own passes, which gather weights and reduce gradients.
void add_exchanges(const Job& job, const Cluster& cluster, const Schedule& schedule, size_t number, PlayCosts& costs) {
  const ReplicaExchanges exchanges(job, cluster);
  const UpdateShape update{.exchange = job.layout.exchange};
  const StageCost& stage = costs.stages[number];
  const size_t rank = at(schedule.rank_of_stage[number]);
  const auto lanes = static_cast<double>(job.layout.lanes);
  const double gathers = job.layout.zero == 3 ? lanes : 1, sums = job.layout.zero >= 2 ? lanes : 1;
  std::vector<double>&gather = costs.gather.emplace_back(), &reduce = costs.reduce.emplace_back();
  std::vector<double>& push = costs.push.emplace_back();
  for (const StagePart& part : stage.parts) {
    gather.push_back(gathers * exchanges.gather(part));
    reduce.push_back(sums * exchanges.reduce(part));
    if (!update.has_servers()) continue;
    const bool is_first = number == 0 && &part == &stage.parts.front();
    const bool is_last = number + 1 == costs.stages.size() && &part == &stage.parts.back();
    push.push_back(exchanges.push(part, is_first));
    costs.pull[rank] += exchanges.pull(part, is_last);
  }
  costs.values.push_back(exchanges.values());
  if (update.combines()) costs.combine[rank] += exchanges.combine(stage);
  if (update.exchange == GradientExchange::kLocal) costs.meet[rank] += exchanges.meet(stage);
}

}  // namespace

std::vector<int64_t> widths_of_ranks(const std::vector<Job>& jobs, const Schedule& schedule) {
  std::vector<int64_t> widths(at(schedule.num_ranks), 0);
  for (size_t stage = 0; stage < jobs.size(); ++stage) {
    widths[at(schedule.rank_of_stage[stage])] = width_of(jobs[stage].layout);
  }
  return widths;
}

std::vector<int64_t> first_devices(const std::vector<Job>& jobs, const Schedule& schedule) {
  std::vector<int64_t> first;
  int64_t next = 0;
  for (const int64_t width : widths_of_ranks(jobs, schedule)) {
    first.push_back(next);
    next += width;
  }
  return first;
}

PlayCosts step_costs(const std::vector<Job>& jobs, const Cluster& cluster, const std::vector<StageCost>& stages,
                     const Schedule& schedule) {
  const Behaviour does = behaviour_of(jobs.front(), cluster);
  PlayCosts costs;
  costs.stages = stages;
  costs.message = message_times(jobs, cluster, schedule);
  costs.combine = costs.pull = costs.meet = std::vector<double>(at(schedule.num_ranks), 0.0);
  for (size_t n = 0; n < stages.size(); ++n) add_exchanges(jobs[n], cluster, schedule, n, costs);
  costs.update = update_times(jobs, cluster, stages, schedule, does);
  costs.overlap = does.overlaps_gradients;
  costs.overlap_messages = does.overlaps_messages;
  costs.repeats_in_backward = true;
  return costs;
}

}  // namespace trireme
