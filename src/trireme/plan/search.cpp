#include "trireme/plan/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/config/check.h"
#include "trireme/config/recompute.h"
#include "trireme/config/stages.h"
#include "trireme/config/value.h"
#include "trireme/plan/blame.h"
#include "trireme/plan/candidates.h"
#include "trireme/plan/config_job.h"
#include "trireme/plan/graph/stage_recompute.h"
#include "trireme/plan/graph/uneven.h"
#include "trireme/plan/plan_writer.h"
#include "trireme/program/memory.h"

namespace trireme {
namespace {

constexpr size_t kMostSimulations = 2500;
constexpr int64_t kMostDevices = 131'072;   ///< upper bound on the devices suggested for a model that does not fit
constexpr size_t kPlayed = 40;              ///< layouts simulated before a configuration counts as infeasible
constexpr size_t kRefined = 6;              ///< best layouts whose stages are balanced again
constexpr size_t kMixedTries = 40;          ///< layouts in which only some stages recompute
constexpr size_t kUnevenTries = 2;          ///< settings tried with stages of different shapes
constexpr int64_t kMostUnevenSamples = 64;  ///< samples per micro-batch over all replicas, if no equal stages are found
constexpr double kAsGood = 0.005;  ///< relative difference below the model's resolution: the simpler layout wins
constexpr double kWorthSaying = 0.01;
constexpr double kWorthTrying = 0.5;  ///< finalists may be predicted to be slower than the best by this fraction

struct Found {
  Candidate candidate;
  Simulation simulation;
};

/// Complexity of a layout, to choose among layouts that are equally good.
int complexity(const Layout& l) {
  int sum = splits_backward(l.schedule) ? 4 : stages_per_rank(l.schedule, l.interleave) > 1 ? 2 : 0;
  sum +=
      2 * l.zero + (l.sequence ? 1 : 0) + (l.stages.empty() && l.split.empty() ? 0 : 1) + (l.wire_factor < 1 ? 8 : 0);
  return sum + (l.recompute == RecomputeKind::kNone ? 0 : 1) + (l.tp > 1 ? 1 : 0) + (l.pp > 1 ? 1 : 0);
}

class Searcher {
 public:
  Searcher(const Config& config, const Cluster& cluster, int64_t num_devices, const PlanOptions& options)
      : config_(config), cluster_(cluster), devices_(num_devices), options_(options) {
    if (num_devices < 1) throw UsageError(counted(num_devices, "device"), "plan for 1 or more");
    if (!config.parallel.plan.empty() && !config.parallel.asks_planner()) {
      throw wrong_key("parallel.plan", fmt::format("parallel.plan = \"{}\" is a plan already", config.parallel.plan),
                      "leave it empty");
    }
    if (options.memory_limit_bytes > 0) cluster_.device.memory_bytes = options.memory_limit_bytes;
    cluster_.check();
    cluster_.hosts_for(num_devices);
    check_types(job_of(config, Software::kTrireme).layout, cluster_);
  }

  /// Returns the layouts that fit, best first. Throws if none does; `briefly`: without suggestions.
  void run(bool briefly = false) {
    candidates_ = all_candidates(config_, cluster_, devices_, options_);
    const double margin = options_.num_finalists > 1 ? kWorthTrying : 10 * kAsGood;
    for (const Candidate& candidate : candidates_) {
      if (candidate.least_bytes > limit()) continue;
      const double best = found_.empty() ? 1e300 : best_seconds_;
      if (candidate.least_seconds > best * (1 + margin) || simulated_ >= kMostSimulations) break;
      try_candidate(candidate);
    }
    mix_recomputation();
    sort_found();
    refine_splits();
    sort_found();
    if (briefly && found_.empty()) throw Error("nothing fits into " + counted(devices_, "device"));
    if (briefly) return;
    uneven_ = try_uneven();
    const bool may_differ = options_.uneven || found_.empty();
    if (uneven_ && may_differ && uneven_->simulation.step_seconds < best_seconds_) {
      found_.insert(found_.begin(), *std::exchange(uneven_, std::nullopt));
    }
    if (found_.empty() && candidates_.empty()) refuse_to_cut();
    if (found_.empty()) refuse_memory();
  }

  PlanReport report() {
    PlanReport report;
    const Found& best = found_[0];
    if (uneven_ && uneven_->simulation.step_seconds < (1 - kAsGood) * best.simulation.step_seconds) {
      report.uneven = alternative(*uneven_);
    }
    report.plan = plan_of(config_, cluster_, best.candidate, best.simulation);
    report.simulation = best.simulation;
    std::set<std::tuple<int64_t, int64_t, int64_t, std::string>> seen;
    const auto degrees = [](const Found& f) {
      const Layout& l = f.candidate.job.layout;
      return std::tuple(l.dp, l.tp, l.pp, l.shapes_text());
    };
    seen.insert(degrees(best));
    report.finalists.push_back(report.plan);
    for (const Found& other : found_) {
      const bool is_named = report.runners_up.size() < options_.num_runners_up;
      const bool is_finalist = report.finalists.size() < options_.num_finalists;
      if (!is_named && !is_finalist) break;
      if (!seen.insert(degrees(other)).second) continue;
      if (is_named) report.runners_up.push_back(alternative(other));
      if (is_finalist) report.finalists.push_back(plan_of(config_, cluster_, other.candidate, other.simulation));
    }
    report.num_candidates = static_cast<int64_t>(candidates_.size() + num_uneven_);
    report.note = why_not_compressed(config_);
    if (options_.compression && report.note.empty() && !why_not_compressible(config_).empty()) {
      report.note = "compression is not considered: " + why_not_compressible(config_);
    }
    if (options_.explain) {
      report.binding = binding(best);
      add_helps(report);
    }
    report.num_simulated = static_cast<int64_t>(simulated_);
    return report;
  }

  double best_seconds() const { return found_[0].simulation.step_seconds; }
  Alternative best() const { return alternative(found_[0]); }

 private:
  double limit() const { return cluster_.device.memory_bytes; }

  std::optional<Simulation> simulate_it(const Job& job) {
    try {
      ++simulated_;
      return simulate(job, cluster_);
    } catch (const UsageError&) {  // invalid schedule or partition
      return std::nullopt;
    }
  }

  void try_candidate(const Candidate& candidate) {
    std::optional<Simulation> simulation = simulate_it(candidate.job);
    if (!simulation) return;
    simulation->programs.clear();  // long lists that are not needed here
    for (SimulatedRank& rank : simulation->ranks) {
      rank.played.spans.clear();
      rank.played.comms.clear();
    }
    if (!simulation->fits()) {
      if (simulation->step_seconds < best_unfit_) best_unfit_ = simulation->step_seconds;
      return;
    }
    best_seconds_ = std::min(best_seconds_, simulation->step_seconds);
    found_.push_back({candidate, std::move(*simulation)});
  }

  void sort_found() {
    if (found_.empty()) return;
    std::stable_sort(found_.begin(), found_.end(), [](const Found& a, const Found& b) {
      return a.simulation.step_seconds < b.simulation.step_seconds;
    });
    // Among equally good layouts, the simplest first.
    const double line = found_[0].simulation.step_seconds * (1 + kAsGood);
    auto best = found_.begin();
    for (auto it = found_.begin(); it != found_.end() && it->simulation.step_seconds <= line; ++it) {
      if (complexity(it->candidate.job.layout) < complexity(best->candidate.job.layout)) best = it;
    }
    std::rotate(found_.begin(), best, best + 1);
  }

  /// Layouts that fit only with recomputation: recomputes only in the stages that need it.
  void mix_recomputation() {
    for (const char* key : {"train.recompute", "parallel.split"}) {
      if (is_given(config_, key)) return;
    }
    size_t tried = 0;
    for (const Candidate& kept : candidates_) {
      if (kept.least_seconds > best_seconds_ || tried == kMixedTries) break;
      if (kept.job.layout.recompute != RecomputeKind::kNone || !can_recompute_by_stage(kept.job)) continue;
      ++tried;
      const std::optional<Layout> layout = plan_stage_recompute(kept.job, cluster_);
      if (!layout) continue;
      Candidate candidate = kept;
      candidate.job.layout = *layout;
      try_candidate(candidate);
    }
  }

  /// Balances stages by time within the memory limit: embedding and output layer can cost as much as several blocks.
  void refine_splits() {
    if (is_given(config_, "parallel.split")) return;
    const size_t count = std::min(kRefined, found_.size());
    for (size_t i = 0; i < count; ++i) {
      Candidate candidate = found_[i].candidate;
      Layout& l = candidate.job.layout;
      const bool one_per_rank = stages_per_rank(l.schedule, l.interleave) == 1;
      if (l.pp == 1 || !one_per_rank || !l.recompute.ranges.empty())
        continue;  // layouts with ranges are balanced already
      PartitionProblem problem{.num_stages = static_cast<int>(l.pp), .costs = {}};
      const StateBytes states = sharded(state_bytes(candidate.job), l.zero, static_cast<double>(l.num_shards()));
      for (const BlockCost& block : found_[i].simulation.blocks) {
        problem.costs.push_back(block.forward + block.backward_input + block.backward_weight);
        problem.bytes.push_back(static_cast<uint64_t>(block.parameters * states.sum()));
        problem.activation_bytes.push_back(static_cast<uint64_t>(block.activation_bytes));
      }
      problem.in_flight = peak_activations(found_[i].simulation.schedule);
      problem.limit_bytes = static_cast<uint64_t>(limit());
      try {
        l.split = partition(problem);
      } catch (const UsageError&) {  // no partition fits
        continue;
      }
      try_candidate(candidate);
    }
  }

  /// Returns micro-batch, recomputation and ZeRO stage of the best layouts; all combinations if no equal stages fit.
  std::vector<Candidate> uneven_settings() const {
    std::vector<Candidate> settings;
    if (!found_.empty()) {
      std::set<std::tuple<int64_t, RecomputeKind, int>> seen;
      for (const Found& found : found_) {
        const Layout& l = found.candidate.job.layout;
        if (l.compression != Method::kNone) continue;  // compression needs equal replicas
        if (!seen.emplace(l.micro_batch * l.dp, l.recompute.kind, l.zero).second) continue;
        settings.push_back(found.candidate);
        if (settings.size() == kUnevenTries) break;
      }
      return settings;
    }
    if (!candidates_.empty()) return settings;  // too large for equal stages, and for these
    Candidate any{job_of(config_, trireme_on(cluster_))};
    Layout& l = any.job.layout;
    any.job.flash = options_.flash;
    l.dp = l.tp = l.pp = 1;
    std::vector<Recompute> kinds = {l.recompute};
    if (!is_given(config_, "train.recompute")) kinds = {RecomputeKind::kNone, RecomputeKind::kFull};
    for (const int64_t samples : divisors_of(l.global_batch)) {
      if (samples > std::max(devices_, kMostUnevenSamples)) break;
      // Samples of all lanes together, one micro-batch each.
      if (is_given(config_, "train.micro_batch") && samples % config_.train.micro_batch != 0) continue;
      l.micro_batch = samples;
      for (const Recompute& kind : kinds) {
        l.recompute = kind;
        settings.push_back(any);
      }
    }
    return settings;
  }

  /// Finds the best stages of different shapes with the two passes.
  std::optional<Found> try_uneven() {
    std::optional<Found> best;
    if (devices_ < 2 || options_.num_kinds > 1 || config_.parallel.cp > 1) return best;
    for (const char* key :
         {"parallel.dp", "parallel.tp", "parallel.pp", "parallel.schedule", "parallel.split", "parallel.interleave"}) {
      if (is_given(config_, key)) return best;
    }
    TrainerRules rules(config_);
    for (Candidate& candidate : uneven_settings()) {
      const Job job = candidate.job;
      const Graph graph = graph_for(job, cluster_, job.layout.micro_batch * job.layout.dp);
      const std::optional<Layout> layout = plan_uneven({&graph, job, cluster_, devices_});
      if (!layout || !layout->has_uneven_stages()) continue;
      if (is_given(config_, "train.micro_batch") && layout->micro_batch != config_.train.micro_batch) continue;
      for (const ScheduleKind kind : options_.schedules) {
        candidate.job.layout = *layout;
        candidate.job.layout.schedule = kind;
        if (!rules.allow(candidate.job.layout) || !trains(candidate)) continue;
        ++num_uneven_;
        std::optional<Simulation> simulation = simulate_it(candidate.job);
        if (!simulation || !simulation->fits()) continue;
        if (best && best->simulation.step_seconds <= simulation->step_seconds) continue;
        best = Found{candidate, std::move(*simulation)};
      }
    }
    return best;
  }

  /// Whether the rest of the configuration allows stages of different shapes.
  bool trains(const Candidate& candidate) const {
    Config planned = config_;
    const Layout& layout = candidate.job.layout;
    planned.parallel.stages = stages_to_text(layout.stages);
    planned.parallel.schedule = layout.schedule_name();
    planned.parallel.pp = layout.pp;
    try {
      check_stage_degrees(planned);
      return true;
    } catch (const UsageError&) {
      return false;
    }
  }

  Alternative alternative(const Found& found) const {
    return {found.candidate.job.layout.to_string(), found.simulation.step_seconds, found.simulation.memory_bytes()};
  }

  /// Returns the best of a few good layouts on another cluster.
  double best_on(const Cluster& other) const {
    double best = best_seconds();
    const size_t count = std::min<size_t>(found_.size(), 40);
    for (size_t i = 0; i < count; ++i) best = std::min(best, simulate(found_[i].candidate.job, other).step_seconds);
    return best;
  }

  std::string binding(const Found& found) {
    const Simulation& s = found.simulation;
    const double now = s.step_seconds;
    // Layouts that fail only because of memory, lowest bounds first.
    size_t tried = 0;
    for (const Candidate& candidate : candidates_) {
      if (candidate.least_bytes <= limit()) continue;
      if (candidate.least_seconds >= std::min(now, best_unfit_) || ++tried > 20) break;
      if (const std::optional<Simulation> other = simulate_it(candidate.job)) {
        best_unfit_ = std::min(best_unfit_, other->step_seconds);
      }
    }
    if (best_unfit_ < (1 - kWorthSaying) * now) {
      return fmt::format("memory: without the limit of {} a step would take {} ({:.0f} % less)",
                         format_gigabytes(limit()), format_duration(best_unfit_), 100 * (1 - best_unfit_ / now));
    }
    return largest_part(s);
  }

  void add_helps(PlanReport& report) {
    const double now = best_seconds();
    const auto add = [&](const std::string& words, double seconds, const std::string& layout = "") {
      report.helps.push_back({seconds < now ? layout : "", std::min(seconds, now), 0, words});
    };
    PlanOptions options = options_;
    options.explain = false;
    try {
      if (cluster_.num_hosts == 0 || devices_ < int64_t{cluster_.num_hosts} * cluster_.devices_per_host) {
        Searcher more(config_, cluster_, devices_ + 1, options);
        more.run(true);
        add("one more device", more.best_seconds(), more.best().layout);
      }
    } catch (const Error&) {  // batch, heads or layers do not divide by this many
      add("one more device", now);
    }
    Cluster inside = cluster_, between = cluster_;
    inside.inside.bandwidth *= 2;
    between.between.bandwidth *= 2;
    if (devices_ > 1) add("twice the bandwidth inside hosts", best_on(inside));
    if (devices_ > cluster_.devices_per_host) add("twice the bandwidth between hosts", best_on(between));
    const Layout& now_laid = found_[0].candidate.job.layout;
    if (!options_.compression && now_laid.dp > 1 && why_not_compressible(config_).empty()) {
      TrainerRules rules(config_);
      const size_t count = std::min<size_t>(found_.size(), 10);
      double best = now;
      Method method = Method::kNone;
      for (size_t i = 0; i < count; ++i) {
        Job job = found_[i].candidate.job;
        for (const Method each : kPlannedMethods) {
          set_compression(config_, each, job.layout);
          if (job.layout.wire_factor >= 1 || !rules.allow(job.layout)) continue;
          const std::optional<Simulation> other = simulate_it(job);
          if (!other || other->step_seconds >= (1 - kWorthSaying) * best) continue;
          best = other->step_seconds;
          method = each;
        }
      }
      if (method != Method::kNone) add(fmt::format("compression.method = {}", name_of(method)), best);
    }
  }

  /// Whether any layout exists, regardless of memory. Not to be called after run().
  bool has_layout() {
    candidates_ = all_candidates(config_, cluster_, devices_, options_);
    for (size_t i = 0; i < std::min(kPlayed, candidates_.size()); ++i) {
      if (simulate_it(candidates_[i].job)) return true;
    }
    return try_uneven().has_value();
  }

  [[noreturn]] void refuse_to_cut() const {
    refuse_keys(config_, devices_,
                [&](const Config& other) { return Searcher(other, cluster_, devices_, options_).has_layout(); });
  }

  /// Whether some layout fits, judged by the most likely ones. Not to be called after run().
  bool fits_somewhere() {
    candidates_ = all_candidates(config_, cluster_, devices_, options_);
    std::erase_if(candidates_, [&](const Candidate& candidate) { return candidate.least_bytes > limit(); });
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [](const Candidate& a, const Candidate& b) { return a.least_bytes < b.least_bytes; });
    for (size_t i = 0; i < std::min(kPlayed, candidates_.size()) && found_.empty(); ++i) try_candidate(candidates_[i]);
    return !found_.empty();
  }

  /// Doubles the devices until a layout fits, and describes it; empty if batch or model do not divide by that many.
  std::string enough_devices() const {
    PlanOptions options = options_;
    options.explain = false;
    for (int64_t devices = 2 * devices_; devices <= kMostDevices; devices *= 2) {
      try {
        if (!Searcher(config_, cluster_, devices, options).fits_somewhere()) continue;
        Searcher more(config_, cluster_, devices, options);
        more.run(true);
        return fmt::format("{} ({})", counted(devices, "device"), more.best().layout);
      } catch (const Error&) {
      }
    }
    return "";
  }

  /// Throws with the missing memory and what would make it fit.
  [[noreturn]] void refuse_memory() {
    std::vector<Candidate> smallest = candidates_;
    std::stable_sort(smallest.begin(), smallest.end(),
                     [](const Candidate& a, const Candidate& b) { return a.least_bytes < b.least_bytes; });
    std::optional<Simulation> best;
    for (size_t i = 0; i < std::min<size_t>(smallest.size(), 40); ++i) {
      std::optional<Simulation> other = simulate_it(smallest[i].job);
      if (other && (!best || other->memory_bytes() < best->memory_bytes())) best = std::move(other);
    }
    if (!best) refuse_to_cut();
    std::vector<std::string> ways;
    if (const std::string more = enough_devices(); !more.empty()) ways.push_back(more);
    ways.push_back("devices with " + format_gigabytes(best->memory_bytes()));
    if (is_given(config_, "train.recompute") && parse_recompute(config_.train.recompute) != RecomputeKind::kFull)
      ways.push_back("train.recompute = full");
    if (is_given(config_, "parallel.zero")) ways.push_back("leaving parallel.zero to the planner");
    throw Error(fmt::format("{} parameters fit into no layout of {} x {}: the smallest needs {} a device, {} more than "
                            "the {} there are",
                            format_short_count(best->parameters), devices_, cluster_.device.name,
                            format_gigabytes(best->memory_bytes()), format_gigabytes(best->memory_bytes() - limit()),
                            format_gigabytes(limit())),
                "would fit: " + join(ways, "; "));
  }

  const Config& config_;
  Cluster cluster_;
  const int64_t devices_;
  const PlanOptions options_;
  std::vector<Candidate> candidates_;
  std::vector<Found> found_;
  std::optional<Found> uneven_;  ///< stages of different shapes, faster but not asked for, or slower
  double best_seconds_ = 1e300, best_unfit_ = 1e300;
  size_t simulated_ = 0, num_uneven_ = 0;
};

/// Refuses keys that the planner neither keeps nor chooses.
void refuse_unplanned(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  const auto refuse = [&](bool is_set, const char* key, const char* why, const char* cure) {
    if (is_set) throw wrong_key(key, fmt::format("{}: the planner {}", with_origin(config, key), why), cure);
  };
  refuse(parallel.has_own_schedule(), "parallel.schedule", "chooses among named schedules",
         "leave parallel.schedule to it, or simulate yours with trireme simulate");
  refuse(!parallel.stages.empty(), "parallel.stages", "chooses shapes of stages itself",
         "leave parallel.stages to it (--uneven), or simulate yours with trireme simulate");
  refuse(!parallel.shares.empty(), "parallel.shares",
         "shares the batch out itself, where devices differ (--cluster a100-80gb+v100-16gb)",
         "leave parallel.shares to it, or simulate yours with trireme simulate");
  refuse(parallel.ep > 1, "parallel.ep", "plans no experts",
         "leave parallel.ep at 1; trireme simulate --experts N plays a layout with them");
}

}  // namespace

std::string largest_part(const Simulation& s) {
  const std::pair<double, const char*> parts[] = {{s.parts.computing, "computing"},
                                                  {s.parts.communication, "communication that nothing hides"},
                                                  {s.parts.bubble, "the bubble of the pipeline"},
                                                  {s.parts.update, "the update"}};
  const auto largest = std::max_element(std::begin(parts), std::end(parts));
  return fmt::format("{}: {:.0f} % of the step", largest->second, 100 * largest->first / s.step_seconds);
}

PlanReport explain_plan(const Config& config, const Cluster& cluster, int64_t num_devices, const PlanOptions& options) {
  check_model(config);
  refuse_unplanned(config);
  Searcher searcher(config, cluster, num_devices, options);
  searcher.run();
  return searcher.report();
}

Plan make_plan(const Config& config, const Cluster& cluster, int64_t num_devices, const PlanOptions& options) {
  PlanOptions quick = options;
  quick.explain = false;
  return explain_plan(config, cluster, num_devices, quick).plan;
}

}  // namespace trireme
