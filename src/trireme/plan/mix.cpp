// Plans for several kinds of hosts: faster kinds get larger batch parts.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/plan/candidates.h"
#include "trireme/plan/config_job.h"
#include "trireme/plan/search.h"

namespace trireme {
namespace {

/// Upper bound on the parts that the batch is divided into, so that large batches take no longer to plan.
constexpr int64_t kMostParts = 128;

/// Step time on one kind of host, by the number of micro-batches per replica.
class KindTimes {
 public:
  KindTimes(const Job& job, const Cluster& cluster, size_t num_kinds)
      : job_(job), cluster_(in_mix(cluster, job.layout.num_devices(), num_kinds)) {
    job_.layout.batch_parts.clear();
  }

  double seconds(int64_t micro_batches) {
    const auto [entry, is_new] = known_.try_emplace(micro_batches, 0);
    if (is_new) {
      job_.layout.global_batch = micro_batches * job_.layout.micro_batch * job_.layout.dp;
      entry->second = simulate(job_, cluster_).step_seconds;
    }
    return entry->second;
  }

 private:
  Job job_;
  const Cluster cluster_;
  std::map<int64_t, double> known_;
};

// [Note: Batch parts]
// Greedy: each part of the batch goes to the kind that would finish it first. Step time grows with the batch part, so
// no other distribution of these parts finishes earlier.

/// Returns the micro-batches per replica of each kind that minimize the time of the slowest kind; empty if there are
/// too few.
std::vector<int64_t> best_batch_parts(const Job& job, const std::vector<Cluster>& kinds) {
  const auto num_kinds = static_cast<int64_t>(kinds.size());
  const int64_t replicas = job.layout.dp / num_kinds;
  int64_t parts = job.layout.global_batch / job.layout.micro_batch / replicas;
  int64_t each = 1;
  while (parts / each > kMostParts || parts % each != 0) ++each;
  parts /= each;
  if (parts < num_kinds) return {};
  std::vector<KindTimes> times;
  for (const Cluster& kind : kinds) times.emplace_back(job, kind, kinds.size());
  std::vector<int64_t> given(kinds.size(), 1);
  for (int64_t left = parts - num_kinds; left > 0; --left) {
    size_t first = 0;
    double soonest = 1e300;
    for (size_t kind = 0; kind < kinds.size(); ++kind) {
      const double seconds = times[kind].seconds((given[kind] + 1) * each);
      if (seconds < soonest) {
        soonest = seconds;
        first = kind;
      }
    }
    ++given[first];
  }
  for (int64_t& batch_part : given) batch_part *= each;
  return given;
}

struct Divided {
  Plan plan;
  Simulation simulation;
};

/// Returns the plan with the batch divided by speed; nullopt if its keys cannot express that.
std::optional<Divided> divide_batch(const Config& config, const std::vector<Cluster>& kinds, Plan plan) {
  const auto num_kinds = static_cast<int64_t>(kinds.size());
  if (plan.layout.pp > 1 || plan.layout.cp > 1 || plan.layout.dp % num_kinds != 0) return std::nullopt;
  plan.layout.batch_parts.clear();
  plan.layout.zero = std::min<int64_t>(plan.layout.zero, 1);  // higher ZeRO stages synchronize at each micro-batch
  Config planned = config;
  apply_plan(plan, planned);
  Job job = job_of(planned, trireme_on(kinds.front()));
  const std::vector<int64_t> of_kind = best_batch_parts(job, kinds);
  if (of_kind.empty() || std::ranges::max(of_kind) == std::ranges::min(of_kind)) return std::nullopt;
  for (const int64_t batch_part : of_kind) {
    job.layout.batch_parts.insert(job.layout.batch_parts.end(), static_cast<size_t>(plan.layout.dp / num_kinds),
                                  batch_part);
  }
  Divided divided{plan, simulate_mix(job, kinds)};
  if (!divided.simulation.fits()) return std::nullopt;
  int64_t divisor = 0, sum = 0;
  for (const int64_t batch_part : of_kind) divisor = std::gcd(divisor, batch_part);
  for (int64_t& batch_part : job.layout.batch_parts) sum += batch_part /= divisor;
  divided.plan.layout.batch_parts = job.layout.batch_parts;
  divided.plan.layout.leaves = sum;
  return divided;
}

/// Returns the best of several plans with the batch divided by speed.
std::optional<Divided> best_divided(const Config& config, const std::vector<Cluster>& kinds,
                                    const std::vector<Plan>& finalists) {
  std::optional<Divided> best;
  for (const Plan& finalist : finalists) {
    // Smaller micro-batches give finer batch parts; the planner prefers large ones.
    const int64_t largest = finalist.layout.micro_batch;
    for (int64_t micro = largest; micro >= 1; --micro) {
      if (largest % micro != 0 || (micro < largest && is_given(config, "train.micro_batch"))) continue;
      Plan finer = finalist;
      finer.layout.micro_batch = micro;
      std::optional<Divided> divided = divide_batch(config, kinds, finer);
      if (!divided || (best && best->simulation.step_seconds <= divided->simulation.step_seconds)) continue;
      best = std::move(divided);
    }
  }
  return best;
}

/// With equal batch parts: the plan of the slowest kind, which determines the step time.
PlanReport plan_for_slowest(const Config& config, const std::vector<Cluster>& kinds, int64_t num_devices,
                            const PlanOptions& options) {
  PlanOptions of_one = options;
  of_one.num_finalists = std::max<size_t>(8, options.num_finalists);
  of_one.uneven = false;
  of_one.explain = false;
  of_one.num_kinds = static_cast<int64_t>(kinds.size());
  for (const Cluster& kind : kinds) {
    const double limit = kind.device.memory_bytes;
    of_one.memory_limit_bytes = of_one.memory_limit_bytes > 0 ? std::min(of_one.memory_limit_bytes, limit) : limit;
  }
  std::optional<PlanReport> report;
  for (const Cluster& kind : kinds) {
    PlanReport other = explain_plan(config, in_mix(kind, num_devices, kinds.size()), num_devices, of_one);
    if (!report || other.plan.predicted.step_seconds > report->plan.predicted.step_seconds) report = std::move(other);
  }
  return std::move(*report);
}

/// What limits the mix's speed, and what would improve it.
class MixExplanation {
 public:
  MixExplanation(const Config& config, const std::vector<Cluster>& kinds, int64_t num_devices,
                 const PlanOptions& options, PlanReport& report)
      : config_(config), kinds_(kinds), devices_(num_devices), options_(options), report_(report) {
    options_.explain = false;
  }

  void explain() {
    report_.binding = largest_part(report_.simulation);
    bind_by_memory();
    add_devices();
    add_links();
  }

 private:
  static constexpr double kWorthSaying = 0.01;

  double now() const { return report_.simulation.step_seconds; }

  void bind_by_memory() {
    std::vector<Cluster> larger = kinds_;
    for (Cluster& kind : larger) kind.device.memory_bytes = 1e15;
    PlanOptions options = options_;
    options.memory_limit_bytes = 0;
    const double without = explain_plan(config_, larger, devices_, options).simulation.step_seconds;
    if (without >= (1 - kWorthSaying) * now()) return;
    double limit = options_.memory_limit_bytes > 0 ? options_.memory_limit_bytes : 1e300;
    for (const Cluster& kind : kinds_) limit = std::min(limit, kind.device.memory_bytes);
    report_.binding = fmt::format("memory: without the limit of {} a step would take {} ({:.0f} % less)",
                                  format_gigabytes(limit), format_duration(without), 100 * (1 - without / now()));
  }

  void add(const std::string& words, double seconds, const std::string& layout = "") {
    report_.helps.push_back({seconds < now() ? layout : "", std::min(seconds, now()), 0, words});
  }

  void add_devices() {
    const char* words = "one more device of each kind";
    const auto num_kinds = static_cast<int64_t>(kinds_.size());
    for (const Cluster& kind : kinds_) {
      if (kind.num_hosts > 0 && devices_ / num_kinds >= int64_t{kind.num_hosts} * kind.devices_per_host) return;
    }
    try {
      const PlanReport more = explain_plan(config_, kinds_, devices_ + num_kinds, options_);
      add(words, more.simulation.step_seconds, more.plan.layout_text());
    } catch (const Error&) {  // batch, heads or layers do not divide by this many
      add(words, now());
    }
  }

  /// Simulates the plan with the batch divided again, because kinds differ less or more on other links.
  double seconds_on(const std::vector<Cluster>& kinds) const {
    double best = simulate_mix(report_.simulation.job, kinds).step_seconds;
    if (const std::optional<Divided> divided = best_divided(config_, kinds, {report_.plan})) {
      best = std::min(best, divided->simulation.step_seconds);
    }
    return best;
  }

  void add_links() {
    std::vector<Cluster> inside = kinds_, between = kinds_;
    for (Cluster& kind : inside) kind.inside.bandwidth *= 2;
    for (Cluster& kind : between) kind.between.bandwidth *= 2;
    if (devices_ > static_cast<int64_t>(kinds_.size())) add("twice the bandwidth inside hosts", seconds_on(inside));
    add("twice the bandwidth between hosts", seconds_on(between));
  }

  const Config& config_;
  const std::vector<Cluster>& kinds_;
  const int64_t devices_;
  PlanOptions options_;
  PlanReport& report_;
};

}  // namespace

PlanReport explain_plan(const Config& config, const std::vector<Cluster>& kinds, int64_t num_devices,
                        const PlanOptions& options) {
  if (kinds.size() == 1) return explain_plan(config, kinds.front(), num_devices, options);
  const auto num_kinds = static_cast<int64_t>(kinds.size());
  if (num_devices % num_kinds != 0) {
    throw UsageError(fmt::format("{} of {} kinds of hosts", counted(num_devices, "device"), num_kinds),
                     fmt::format("give a multiple of {}: every kind has as many", num_kinds));
  }
  PlanReport report = plan_for_slowest(config, kinds, num_devices, options);
  const Alternative equal{report.plan.layout_text() + ", equal shares", report.simulation.step_seconds,
                          report.simulation.memory_bytes()};
  std::optional<Divided> best = best_divided(config, kinds, report.finalists);
  if (best && best->simulation.step_seconds < report.simulation.step_seconds) {
    report.plan = std::move(best->plan);
    report.simulation = std::move(best->simulation);
    report.runners_up.insert(report.runners_up.begin(), equal);
  }
  std::vector<std::string> names;
  for (const Cluster& kind : kinds) names.push_back(kind.name);
  report.plan.cluster = join(names, "+");
  report.plan.predicted = prediction_of(report.simulation);
  report.finalists = {report.plan};
  if (options.explain) MixExplanation(config, kinds, num_devices, options, report).explain();
  return report;
}

}  // namespace trireme
