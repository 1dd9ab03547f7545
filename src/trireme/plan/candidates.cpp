#include "trireme/plan/candidates.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/config/batch_plan.h"
#include "trireme/config/check.h"
#include "trireme/config/layout_of.h"
#include "trireme/plan/config_job.h"
#include "trireme/program/memory.h"

namespace trireme {
namespace {

constexpr int64_t kMostSamples = 64;    ///< upper bound on samples per micro-batch
constexpr int64_t kMostInterleave = 8;  ///< upper bound on stages per rank
/// Slack of the bounds, which assume equal stages and ignore communication outside blocks.
constexpr double kBoundSlack = 0.97, kMemorySlack = 0.9;

/// Totals over all blocks of a model, on the ranks of one replica.
struct Sums {
  double forward = 0, rest = 0, parameters = 0, activations = 0;
};

class Enumeration {
 public:
  Enumeration(const Config& config, const Cluster& cluster, int64_t num_devices, const PlanOptions& options)
      : config_(config),
        cluster_(cluster),
        devices_(num_devices),
        options_(options),
        base_(job_of(config, trireme_on(cluster))),
        rules_(config) {
    base_.flash = options.flash;
    base_.layout.stages.clear();
    base_.layout.split.clear();
    base_.layout.zero_sums_whole = false;  // apply_plan() sets shares
    if (!is_given(config, "parallel.split")) return;
    Config in_stages = config;
    in_stages.parallel.pp = std::max<int64_t>(2, config.parallel.pp);
    split_ = layout_of(in_stages).split;
  }

  std::vector<Candidate> run() {
    for (const int64_t tp : degrees("parallel.tp", config_.parallel.tp, devices_)) {
      if (!can_cut(tp)) continue;
      for (const int64_t pp : degrees("parallel.pp", config_.parallel.pp, devices_ / tp)) {
        const int64_t rest = devices_ / tp / pp, cp = base_.layout.cp;
        if (rest % cp != 0 || pp > most_stages()) continue;
        const int64_t dp = rest / cp;
        if (config_.parallel.dp > 0 && is_given(config_, "parallel.dp") && dp != config_.parallel.dp) continue;
        if (base_.layout.global_batch % dp != 0 || dp % options_.num_kinds != 0) continue;
        Layout layout = base_.layout;
        layout.tp = tp;
        layout.pp = pp;
        layout.dp = dp;
        batches(layout);
      }
    }
    std::stable_sort(found_.begin(), found_.end(),
                     [](const Candidate& a, const Candidate& b) { return a.least_seconds < b.least_seconds; });
    return std::move(found_);
  }

 private:
  std::vector<int64_t> degrees(const char* key, int64_t value, int64_t of) const {
    if (!is_given(config_, key)) return divisors_of(of);
    return value >= 1 && of % value == 0 ? std::vector<int64_t>{value} : std::vector<int64_t>{};
  }
  int64_t most_stages() const { return base_.model.is_language() ? base_.model.layers : num_layers(config_.model); }
  /// Whether the blocks divide evenly, with embedding and output layer extra or counted as one block each.
  bool cuts_evenly(int64_t num_stages) const {
    const int64_t layers = base_.model.layers;
    return base_.model.is_language() && (layers % num_stages == 0 || (layers + 2) % num_stages == 0);
  }
  bool can_cut(int64_t tp) const {
    // Tensor-parallel collectives are exposed, so they do not pay off between hosts.
    if (tp > cluster_.devices_per_host && !is_given(config_, "parallel.tp")) return false;
    try {
      if (tp > 1) check_tensor_parallel(config_.model, tp);
    } catch (const UsageError&) {
      return false;
    }
    return true;
  }

  /// Whether given leaves divide the batch as the trainer requires.
  bool has_leaves(const Layout& layout) const {
    if (!is_given(config_, "train.leaves")) return true;
    Config own = config_;
    own.train.micro_batch = layout.micro_batch;
    try {
      plan_batch(own, layout.dp);
      return true;
    } catch (const UsageError&) {
      return false;
    }
  }

  void batches(Layout& layout) {
    const int64_t of_replica = layout.global_batch / layout.dp;
    for (const int64_t samples : divisors_of(of_replica)) {
      if (is_given(config_, "train.micro_batch") ? samples != config_.train.micro_batch : samples > kMostSamples)
        continue;
      layout.micro_batch = samples;
      if (has_leaves(layout)) recomputations(layout);
    }
  }

  void recomputations(Layout& layout) {
    if (is_given(config_, "train.recompute")) return sequences(layout);
    for (const RecomputeKind kind : {RecomputeKind::kNone, RecomputeKind::kSelective, RecomputeKind::kFull}) {
      if (kind == RecomputeKind::kSelective && !base_.model.is_language()) continue;
      layout.recompute = kind;
      sequences(layout);
    }
  }

  void sequences(Layout& layout) {
    const bool can = layout.tp > 1 && base_.model.is_language() && base_.model.seq / layout.cp % layout.tp == 0;
    for (const bool sequence : {false, true}) {
      if (sequence && !can) continue;
      if (is_given(config_, "parallel.sequence") && sequence != (config_.parallel.sequence && can)) continue;
      layout.sequence = sequence;
      zero_stages(layout);
    }
  }

  void zero_stages(Layout& layout) {
    for (const int zero : options_.zero) {
      if (is_given(config_, "parallel.zero") ? zero != config_.parallel.zero : zero > 0 && layout.dp == 1) continue;
      layout.zero = zero;
      schedules(layout);
    }
  }

  void schedules(Layout& layout) {
    const auto put = [&](ScheduleKind kind, int64_t interleave) {
      Layout own = layout;
      own.schedule = kind;
      own.interleave = interleave;
      if (!split_.empty() && static_cast<int64_t>(split_.size()) != own.pp * interleave) return;
      own.split = split_;
      if (rules_.allow(own)) compressions(own);
    };
    const bool given = is_given(config_, "parallel.schedule"), given_rounds = is_given(config_, "parallel.interleave");
    if (layout.pp == 1) return put(given ? base_.layout.schedule : ScheduleKind::k1F1B, 1);
    const std::vector<ScheduleKind> kinds = given ? std::vector{base_.layout.schedule} : options_.schedules;
    for (const ScheduleKind kind : kinds) {
      if (!takes_interleave(kind)) {
        put(kind, given_rounds && kind == ScheduleKind::k1F1B ? config_.parallel.interleave : 1);
        continue;
      }
      for (int64_t rounds = 2; rounds <= kMostInterleave; ++rounds) {
        if (given_rounds && rounds != std::max<int64_t>(2, config_.parallel.interleave)) continue;
        if (cuts_evenly(layout.pp * rounds) && layout.accumulation() % layout.pp == 0) put(kind, rounds);
      }
    }
  }

  void compressions(Layout& layout) {
    add(layout);
    if (!options_.compression || is_given(config_, "compression.method") || layout.dp == 1) return;
    for (const Method method : kPlannedMethods) {
      set_compression(config_, method, layout);
      if (layout.wire_factor < 1 && rules_.allow(layout)) add(layout);
    }
  }

  void add(const Layout& layout) {
    Candidate candidate{base_};
    candidate.job.layout = layout;
    try {
      candidate.job.check();
      bound(candidate);
    } catch (const UsageError&) {
      return;
    }
    found_.push_back(std::move(candidate));
  }

  const Sums& sums_of(const Job& job) {
    const Layout& l = job.layout;
    const auto key = std::tuple(l.tp, l.sequence, l.micro_batch, l.recompute.kind, l.pp > 1);
    const auto [entry, is_new] = sums_.try_emplace(key);
    if (is_new) {
      for (const BlockCost& block : block_costs(job, cluster_)) {
        entry->second.forward += block.forward;
        entry->second.rest += block.backward_input + block.backward_weight;
        entry->second.parameters += block.parameters;
        entry->second.activations += block.activation_bytes;
      }
    }
    return entry->second;
  }

  /// Micro-batches whose activations some rank holds at once, at least.
  double least_in_flight(const Layout& l) {
    if (!l.is_pipeline()) return 1;
    if (depends_on_times(l.schedule)) return static_cast<double>(std::min(l.accumulation(), l.pp));
    const auto [entry, is_new] = in_flight_.try_emplace({l.schedule, l.pp, l.accumulation(), l.interleave});
    if (is_new) entry->second = std::ranges::max(peak_activations(schedule_of(l)));
    return entry->second;
  }

  void bound(Candidate& candidate) {
    const Layout& l = candidate.job.layout;
    const Sums& sums = sums_of(candidate.job);
    const auto pp = static_cast<double>(l.pp), m = static_cast<double>(l.accumulation());
    const double stage = (sums.forward + sums.rest) / pp;
    const double fill = splits_backward(l.schedule) ? sums.forward / pp : stage;
    const double rounds = stages_per_rank(l.schedule, l.interleave);
    candidate.least_seconds = kBoundSlack * (m * stage + (pp - 1) / rounds * fill) + cluster_.device.step_seconds;
    const StateBytes states = sharded(state_bytes(candidate.job), l.zero, static_cast<double>(l.num_shards()));
    candidate.least_bytes =
        kMemorySlack * (sums.parameters / pp * states.sum() + least_in_flight(l) * sums.activations / pp);
  }

  const Config& config_;
  const Cluster& cluster_;
  const int64_t devices_;
  const PlanOptions& options_;
  Job base_;
  TrainerRules rules_;
  Partition split_;  ///< the given split; empty: free
  std::map<std::tuple<int64_t, bool, int64_t, RecomputeKind, bool>, Sums> sums_;
  std::map<std::tuple<ScheduleKind, int64_t, int64_t, int64_t>, double> in_flight_;
  std::vector<Candidate> found_;
};

}  // namespace

std::vector<int64_t> divisors_of(int64_t n) {
  std::vector<int64_t> list;
  for (int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    list.push_back(d);
    if (d != n / d) list.push_back(n / d);
  }
  std::sort(list.begin(), list.end());
  return list;
}

std::vector<Candidate> all_candidates(const Config& config, const Cluster& cluster, int64_t num_devices,
                                      const PlanOptions& options) {
  return Enumeration(config, cluster, num_devices, options).run();
}

}  // namespace trireme
