#include "trireme/config/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/config/batch_plan.h"
#include "trireme/config/compatibility.h"
#include "trireme/config/compression.h"
#include "trireme/config/pipeline.h"
#include "trireme/config/recompute.h"
#include "trireme/config/stages.h"
#include "trireme/config/value.h"

namespace trireme {
namespace {

struct Absent {
  std::string_view key;
  Value present;  ///< the only value that works
  std::string_view what;
};

// Everything that has keys but is not implemented; remove a line when its feature is added.
const std::vector<Absent>& absent_keys() {
  static const std::vector<Absent> all = {
      {"parallel.cp", 1, "context parallelism"},
      {"parallel.ep", 1, "expert parallelism"},
      {"parallel.plan", std::string(), "a plan outside of trireme train"},
      {"elastic.max_restarts", 0, "restarting after a failure"},
  };
  return all;
}

/// Throws for features that have keys but are not in this version.
void refuse_absent(const Config& config) {
  for (const Absent& absent : absent_keys()) {
    const Key& key = find_key(absent.key, "the list of what is absent");
    const Value value = get_value(config, key);
    if (value == absent.present) continue;
    throw wrong_key(
        absent.key, fmt::format("{} = {}: {} is not in this version", absent.key, format_value(value), absent.what),
        fmt::format("it came {}; only {} works", config.origins.phrase(absent.key), format_value(absent.present)));
  }
}

/// "126 or 132": multiples of `step` around `value`.
std::string nearest_multiples(int64_t value, int64_t step) {
  const int64_t below = value / step * step;
  return below > 0 ? fmt::format("{} or {}", below, below + step) : fmt::format("{}", step);
}

/// "2 or 4": divisors of `whole` around `value`, which is not one.
std::string nearest_divisors(int64_t whole, int64_t value) {
  int64_t below = std::min(value, whole), above = value;
  while (whole % below != 0) --below;
  while (above < whole && whole % above != 0) ++above;
  return above > whole || whole % above != 0 ? fmt::format("{}", below) : fmt::format("{} or {}", below, above);
}

/// Not for ResNets and library models, whose layers are only known when they are built.
void check_recompute(const Config& config) {
  const Recompute wanted = parse_recompute(config.train.recompute);
  const ModelConfig& model = config.model;
  if (!model.is_own() && model.kind != ModelKind::kResNet && wanted.last() >= model.layers) {
    contradict(config, "train.recompute", "names a layer that is not there with", "model.layers",
               fmt::format("layers are numbered from 0 to {}", model.layers - 1));
  }
}

/// Shard groups must divide the replicas and keep the order of sums.
void check_zero_shards(const Config& config, int64_t dp) {
  const int64_t shards = config.parallel.zero_shards;
  if (config.parallel.zero == 0 || shards == 0) return;
  const auto is_power = [](int64_t n) { return (n & (n - 1)) == 0; };
  if (dp % shards != 0 || (shards != dp && !(is_power(shards) && is_power(dp)))) {
    refuse(config, "parallel.zero_shards", fmt::format("does not cut {} replicas into sets of the same sum", dp),
           "take a power of two that divides parallel.dp, itself a power of two; or 0: all replicas share");
  }
}

/// Replicas that update locally have no common state to save between two averagings.
void check_meetings(const Config& config) {
  const LocalConfig& local = config.local;
  const int64_t every = config.checkpoint.every;
  if (local.method == LocalMethod::kNone || every == 0) return;
  const bool shifted = local.after % local.every != 0;
  if (!shifted && every % local.every == 0) return;
  const std::string_view key = shifted ? "local.after" : "checkpoint.every";
  contradict(config, "checkpoint.every", "falls between two meetings of replicas, with",
             shifted ? "local.after" : "local.every",
             fmt::format("nearest {}: {}", key, nearest_multiples(shifted ? local.after : every, local.every)));
}

void check_run(const Config& config) {
  const OptimizerConfig& optimizer = config.optimizer;
  // Only a warm-up from the command line is checked: that of a preset or a file may exceed steps reduced on the command
  // line, and a run folder's file may describe such a run, which succeeded.
  const bool chosen = config.origins.of("optimizer.warmup_steps") == "command line";
  if (chosen && optimizer.warmup_steps > config.train.steps) {
    contradict(config, "optimizer.warmup_steps", "is more than", "train.steps",
               fmt::format("set it to {} or less", config.train.steps));
  }
  const std::string& name = config.observe.name;
  if (name == "." || name == ".." || name.find('/') != std::string::npos) {
    refuse(config, "observe.name", "is not the name of a folder", "set observe.run_dir to choose the whole path");
  }
}

/// "parallel.tp = 2, parallel.pp = 4": the degrees over 1 that workers_of_replica() multiplies.
std::string degrees_of_replica(const ParallelConfig& parallel) {
  std::string text;
  for (const auto& [key, degree] :
       {std::pair{"parallel.tp", parallel.tp}, {"parallel.pp", parallel.pp}, {"parallel.cp", parallel.cp}}) {
    if (degree > 1) text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", key, degree);
  }
  return text;
}

/// Number of replicas: as set, or derived from the number of workers.
int64_t resolve_dp(const Config& config, int64_t world_size) {
  if (world_size < 1) throw UsageError(fmt::format("{} workers are not a number of workers", world_size));
  const ParallelConfig& parallel = config.parallel;
  if (parallel.dp == 0) {
    refuse(config, "parallel.dp", "is not a number of workers", "1 or more; -1 is the rest of the workers");
  }
  const int64_t others = workers_of_replica(config);
  const std::string text = degrees_of_replica(parallel);
  if (!parallel.stages.empty()) {
    const std::vector<StageDegrees> stages = stage_degrees(config);
    if (num_workers(stages) == world_size) return num_lanes(stages);
    refuse(config, "parallel.stages",
           fmt::format("needs {} workers, but there are {}", num_workers(stages), world_size),
           fmt::format("start {} workers (--nproc {} on one machine), or take another layout: --parallel.stages= "
                       "--parallel.pp=1",
                       num_workers(stages), num_workers(stages)));
  }
  if (parallel.dp == -1) {
    if (world_size % others == 0) return world_size / others;
    throw UsageError(fmt::format("{} workers cannot be split by {}", world_size, text),
                     fmt::format("nearest: {} workers", nearest_multiples(world_size, others)));
  }
  int64_t needed = 0;
  if (__builtin_mul_overflow(others, parallel.dp, &needed) || needed != world_size) {
    refuse(config, "parallel.dp",
           fmt::format("{}{}needs {} workers, but there are {}", text.empty() ? "" : "with " + text,
                       text.empty() ? "" : " ", needed, world_size),
           fmt::format("start {} workers (--nproc {} on one machine), or leave parallel.dp at -1: the rest", needed,
                       needed));
  }
  return parallel.dp;
}

}  // namespace

int64_t workers_of_replica(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  for (const auto& [key, degree] : {std::pair{"parallel.tp", parallel.tp},
                                    {"parallel.pp", parallel.pp},
                                    {"parallel.cp", parallel.cp},
                                    {"parallel.ep", parallel.ep}}) {
    if (degree >= 1) continue;
    refuse(config, key, "is not a number of workers", "1 or more; only parallel.dp may be -1");
  }
  int64_t workers = 0;
  if (__builtin_mul_overflow(parallel.tp, parallel.pp, &workers) ||
      __builtin_mul_overflow(workers, parallel.cp, &workers)) {
    throw UsageError(degrees_of_replica(parallel) + " need more workers than there can be");
  }
  return workers;
}

void check_model(const Config& config) {
  const ModelConfig& model = config.model;
  if (model.is_language() && model.hidden % model.heads != 0) {
    contradict(config, "model.hidden", "cannot be split over", "model.heads",
               fmt::format("nearest model.hidden: {}; nearest model.heads: {}",
                           nearest_multiples(model.hidden, model.heads), nearest_divisors(model.hidden, model.heads)));
  }
  if (model.kind == ModelKind::kLlama) {
    if (model.heads % model.kv_heads != 0) {
      contradict(config, "model.heads", "cannot be split over", "model.kv_heads",
                 "every head of keys and values serves the same number of heads");
    }
    if (model.hidden / model.heads % 2 != 0) {
      contradict(config, "model.hidden", "gives heads of an odd width with", "model.heads",
                 "rotary positions turn pairs: the width of a head must be even");
    }
  }
  const bool known_depth = model.depth == 18 || model.depth == 34 || model.depth == 50 || model.depth == 101;
  if (model.kind == ModelKind::kResNet && !known_depth) {
    refuse(config, "model.depth", "is not a ResNet", "there are 18, 34, 50 and 101");
  }
}

void check_tensor_parallel(const ModelConfig& model, int64_t ranks, std::string_view key) {
  const auto demand = [&](bool holds, std::string_view what, int64_t value, const std::string& cure) {
    if (holds) return;
    const bool is_key = key.find(' ') == std::string_view::npos;  // or a phrase about parallel.stages
    throw wrong_key(is_key ? key : "parallel.stages",
                    fmt::format("{} = {} cannot be split over {} = {}", what, value, key, ranks), cure);
  };
  if (model.is_language()) {
    demand(model.heads % ranks == 0, "model.heads", model.heads,
           "attention is cut by heads: choose a tp that divides them");
    demand(model.ffn >= ranks, "model.ffn", model.ffn, "use fewer ranks");
    demand(model.vocab >= ranks, "model.vocab", model.vocab, "use fewer ranks");
  }
  if (model.kind == ModelKind::kLlama) {
    demand(model.kv_heads % ranks == 0 || ranks % model.kv_heads == 0, "model.kv_heads", model.kv_heads,
           "tp must divide the key/value heads, or be a multiple of them");
  }
  if (model.kind == ModelKind::kMlp) demand(model.hidden >= ranks, "model.hidden", model.hidden, "use fewer ranks");
  if (model.kind == ModelKind::kResNet) demand(ranks <= 64, "the channels of the first layers", 64, "use fewer ranks");
}

Layout check_sizes(const Config& config, int64_t world_size) {
  check_model(config);
  check_recompute(config);
  check_rules(config, RuleScope::kEveryTraining);
  check_compression(config);
  check_run(config);
  if (config.parallel.tp > 1) check_tensor_parallel(config.model, config.parallel.tp);
  check_stage_degrees(config);
  check_pipeline(config);
  const Layout layout = plan_batch(config, resolve_dp(config, world_size));
  check_own_schedule(config, layout);
  return layout;
}

Layout check(const Config& config, int64_t world_size) {
  refuse_absent(config);
  const Layout layout = check_sizes(config, world_size);
  check_rules(config, RuleScope::kThisTrainer);
  check_zero_shards(config, layout.dp);
  check_meetings(config);
  return layout;
}

Config with_layout(Config config, const Layout& layout) {
  if (config.parallel.dp == -1) {
    config.parallel.dp = layout.dp;
    config.origins.set("parallel.dp", "derived");
  }
  if (config.train.leaves == 0) {
    config.train.leaves = layout.leaves;
    config.origins.set("train.leaves", "derived");
  }
  return config;
}

Config with_trainer_choices(Config config) {
  ParallelConfig& parallel = config.parallel;
  if (parallel.overlap == Overlap::kAuto) parallel.overlap = Overlap::kOn;
  if (parallel.zero_accumulation == ZeroAccumulation::kAuto) parallel.zero_accumulation = ZeroAccumulation::kWhole;
  return config;
}

}  // namespace trireme
