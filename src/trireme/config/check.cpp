#include "trireme/config/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/config/batch_plan.h"
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

// The whole list: a line goes when its capability comes.
const std::vector<Absent>& absent_keys() {
  static const std::vector<Absent> all = {
      {"parallel.cp", 1, "context parallelism"},
      {"parallel.ep", 1, "expert parallelism"},
      {"parallel.plan", std::string(), "a plan outside of trireme train"},
      {"elastic.max_restarts", 0, "restarting after a failure"},
  };
  return all;
}

/// What a configuration may ask for but this version cannot do.
void refuse_absent(const Config& config) {
  for (const Absent& absent : absent_keys()) {
    const Key& key = find_key(absent.key, "the list of what is absent");
    const Value value = get_value(config, key);
    if (value == absent.present) continue;
    throw UsageError(
        fmt::format("{} = {}: {} is not in this version", absent.key, format_value(value), absent.what),
        fmt::format("it came {}; only {} works", config.origins.phrase(absent.key), format_value(absent.present)));
  }
}

/// "126 or 132": multiples of `step` around `value`.
std::string nearest_multiples(int64_t value, int64_t step) {
  const int64_t below = value / step * step;
  return below > 0 ? fmt::format("{} or {}", below, below + step) : fmt::format("{}", step);
}

/// "2 or 4": divisors of `whole` around `value`, which is none.
std::string nearest_divisors(int64_t whole, int64_t value) {
  int64_t below = std::min(value, whole), above = value;
  while (whole % below != 0) --below;
  while (above < whole && whole % above != 0) ++above;
  return above > whole || whole % above != 0 ? fmt::format("{}", below) : fmt::format("{} or {}", below, above);
}

void check_data(const Config& config) {
  const DataConfig& data = config.data;
  const bool has_files = data.kind == "text" || data.kind == "tokens" || data.kind == "images";
  if (has_files && data.path.empty()) {
    throw UsageError(with_origin(config, "data.kind") + " needs files, but data.path is empty",
                     "give --data.path, or data.kind = \"generated\"");
  }
  if (data.kind == "generated" && !data.path.empty()) {
    contradict(config, "data.kind", "reads no files, but", "data.path", "set one of them only");
  }
  if (data.kind == "images" && config.model.is_language()) {
    contradict(config, "data.kind", "cannot train", "model.kind", "images are for resnet and mlp");
  }
  if ((data.kind == "text" || data.kind == "tokens") && !config.model.is_language()) {
    contradict(config, "data.kind", "cannot train", "model.kind", "text and tokens are for gpt2 and llama");
  }
  if (data.kind == "text" && data.tokenizer.empty() && config.model.vocab < 256) {
    throw UsageError(with_origin(config, "model.vocab") + " is less than the 256 bytes of a text",
                     "set model.vocab to 256, or give data.tokenizer");
  }
}

/// A ResNet counts its own layers, when it is built.
void check_recompute(const Config& config) {
  const Recompute wanted = parse_recompute(config.train.recompute);
  const ModelConfig& model = config.model;
  if (wanted.attention && !model.is_language()) {
    contradict(config, "train.recompute", "computes attention again, which is not in", "model.kind",
               "set train.recompute to full, or to the numbers of layers");
  }
  if (model.kind != ModelKind::kResNet && wanted.last() >= model.layers) {
    contradict(config, "train.recompute", "names a layer that is not there with", "model.layers",
               fmt::format("layers are numbered from 0 to {}", model.layers - 1));
  }
}

void check_precision(const Config& config) {
  if (config.precision.matmul != "fp8") return;
  if (config.train.device != "cuda") {
    contradict(config, "precision.matmul", "needs a GPU, not", "train.device", "set train.device = \"cuda\"");
  }
  if (config.precision.compute != "bfloat16") {
    contradict(config, "precision.matmul", "stands beside bfloat16, not", "precision.compute",
               "set precision.compute = \"bfloat16\": everything but those products is computed in it");
  }
  if (!config.model.is_language()) {
    contradict(config, "precision.matmul", "is for gpt2 and llama, not", "model.kind",
               "set precision.matmul = \"compute\"");
  }
}

void check_parallel(const Config& config) {
  const int64_t tp = config.parallel.tp;
  if (tp > 1) check_tensor_parallel(config.model, tp);
  if (config.parallel.sequence && tp == 1 && config.parallel.stages.empty()) {
    contradict(config, "parallel.sequence", "splits norms over the ranks of a model, but", "parallel.tp",
               "set parallel.tp to 2 or more");
  }
  if (config.parallel.sequence && !config.model.is_language()) {
    contradict(config, "parallel.sequence", "is for gpt2 and llama, not", "model.kind", "leave it off");
  }
}

/// Replicas with more micro-batches than others do more steps alone: nothing may need all of them at each.
void check_shares(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  if (parallel.shares.empty()) return;
  const auto demand = [&](bool holds, std::string_view key, const char* why, const std::string& cure) {
    if (!holds) contradict(config, "parallel.shares", why, key, cure);
  };
  demand(parallel.pp == 1, "parallel.pp", "are of replicas without stages, not of",
         "give faster workers of a pipeline more layers: parallel.split");
  demand(parallel.zero < 3, "parallel.zero", "let replicas come to a layer at different times, which all share with",
         "set parallel.zero to 2 or less");
  demand(parallel.zero < 2 || parallel.zero_accumulation == "whole", "parallel.zero_accumulation",
         "let replicas have different micro-batches, which are summed one by one with", "set it to \"whole\"");
  demand(!config.model.sync_statistics, "model.sync_statistics",
         "let replicas come to a norm at different times, which all meet at with", "leave one of the two");
  demand(parallel.aggregation == "average" || parallel.aggregation == "sum", "parallel.aggregation",
         "are not counted by", "set it to \"average\"");
  demand(config.local.method == "none", "local.method", "are not counted by", "set it to \"none\"");
}

/// Pairs that could work, and do not yet.
void refuse_pairs(const Config& config) {
  if (config.precision.matmul != "fp8") return;
  for (const auto& [key, degree] :
       {std::pair{"parallel.tp", config.parallel.tp}, std::pair{"parallel.pp", config.parallel.pp}}) {
    if (degree > 1)
      contradict(config, "precision.matmul", "does not go with", key, "set precision.matmul = \"compute\"");
  }
}

/// Each stage is updated by itself, so nothing can depend on all gradients of a step.
void check_asynchronous(const Config& config) {
  const auto demand = [&](bool holds, std::string_view key, const std::string& cure) {
    if (!holds)
      contradict(config, key, "needs all stages at each update, and there is none such with", "parallel.schedule",
                 cure);
  };
  if (!config.parallel.is_asynchronous()) {
    if (config.parallel.update_every == 0) return;
    contradict(config, "parallel.update_every", "is for pipedream and pipedream-2bw, not", "parallel.schedule",
               "leave it at 0");
  }
  demand(config.train.clip == 0, "train.clip", "set train.clip = 0");
  demand(config.precision.compute != "float16", "precision.compute", "use bfloat16, which needs no loss scale");
  demand(config.train.on_nan != "skip", "train.on_nan", "set train.on_nan to stop or rollback");
  demand(!config.model.is_language() || !config.model.tied, "model.tied", "set model.tied = false");
}

void check_zero(const Config& config, int64_t dp) {
  const ParallelConfig& parallel = config.parallel;
  if (parallel.offload == "memory" && config.train.device == "cpu") {
    contradict(config, "parallel.offload", "is the host's, where everything lies with", "train.device",
               "leave parallel.offload empty, or name a folder");
  }
  if (!parallel.offload.empty() && config.train.device == "cuda" && config.compression.method == "onebit_adam") {
    contradict(config, "parallel.offload", "takes moments away from the GPU, where they are needed for",
               "compression.method", "leave parallel.offload empty, or take compression.method = \"sign\"");
  }
  const auto needs = [&](bool is_set, std::string_view key, std::string_view what, int64_t stage) {
    if (is_set && parallel.zero < stage) {
      contradict(config, key, what, "parallel.zero", fmt::format("set parallel.zero = {}", stage));
    }
  };
  needs(parallel.zero_shards > 0, "parallel.zero_shards", "says who shares, but nobody does with", 1);
  needs(parallel.zero_keep, "parallel.zero_keep", "is for weights that are shared, not with", 3);
  needs(parallel.offload_weights, "parallel.offload_weights", "is for weights that come and go, not with", 3);
  if (parallel.offload_weights && parallel.offload.empty()) {
    contradict(config, "parallel.offload_weights", "has nowhere to lay them with", "parallel.offload",
               "name a folder, or, on GPUs, set parallel.offload = \"memory\"");
  }
  needs(parallel.zero_accumulation != "whole", "parallel.zero_accumulation",
        "is for gradients that are shared, not with", 2);
  if (parallel.zero == 0) return;
  if (parallel.is_asynchronous()) {
    contradict(config, "parallel.zero", "gathers weights once a step, which change more often with",
               "parallel.schedule", "take a synchronous schedule, such as 1f1b");
  }
  if (config.precision.matmul == "fp8") {
    contradict(config, "precision.matmul", "keeps copies of whole weights, not with", "parallel.zero",
               "set precision.matmul = \"compute\"");
  }
  const int64_t shards = parallel.zero_shards;
  if (shards == 0) return;
  const auto is_power = [](int64_t n) { return (n & (n - 1)) == 0; };
  if (dp % shards != 0 || (shards != dp && !(is_power(shards) && is_power(dp)))) {
    throw UsageError(fmt::format("{} does not cut {} replicas into sets of the same sum",
                                 with_origin(config, "parallel.zero_shards"), dp),
                     "take a power of two that divides parallel.dp, itself a power of two; or 0: all replicas share");
  }
}

void check_one_bit_adam(const Config& config) {
  const auto refuse = [&](bool wrong, std::string_view what, std::string_view key, std::string_view proposal) {
    if (wrong) contradict(config, "compression.method", what, key, std::string(proposal));
  };
  refuse(config.optimizer.kind == "sgd", "sends Adam's momentum, not that of", "optimizer.kind",
         "set optimizer.kind = \"adamw\", or take compression.method = \"sign\"");
  refuse(config.parallel.zero > 0, "needs the whole momentum and second moment on every replica, not with",
         "parallel.zero", "set parallel.zero = 0, or take compression.method = \"sign\"");
  refuse(config.train.clip > 0, "sums no gradients after its warm-up, so that nobody knows the norm for", "train.clip",
         "set train.clip = 0");
  refuse(config.compression.warmup_steps == 0, "freezes the second moment after a warm-up, which has no steps with",
         "compression.warmup_steps", "set it to a tenth or more of train.steps, and past optimizer.warmup_steps");
}

/// Weights of ZeRO's third stage.
void check_gather(const Config& config) {
  if (config.compression.gather == "none") return;
  const auto refuse = [&](bool wrong, std::string_view what, std::string_view key, std::string_view proposal) {
    if (wrong) contradict(config, "compression.gather", what, key, std::string(proposal));
  };
  refuse(config.parallel.zero != 3, "packs weights that are gathered for each use, not with", "parallel.zero",
         "set parallel.zero = 3");
  refuse(config.parallel.tp > 1, "rounds by what lies together, which differs over", "parallel.tp",
         "weights that all its ranks hold would differ: set parallel.tp = 1, or compression.gather = \"none\"");
}

void check_compression(const Config& config) {
  check_gather(config);
  const CompressionConfig& compression = config.compression;
  if (compression.method == "none") return;
  if (config.precision.compute == "float16") {
    contradict(config, "compression.method", "would keep what overflows with", "precision.compute", "use bfloat16");
  }
  if (config.precision.gradients == "compute") {
    contradict(config, "compression.method", "says how gradients travel, and so does", "precision.gradients",
               "set precision.gradients = \"float32\"");
  }
  // Servers have one copy of what all ranks hold.
  const bool by_servers = config.parallel.aggregation == "server";
  if (config.parallel.tp > 1 && compression.method != "bfloat16" && !by_servers) {
    contradict(config, "compression.method", "chooses and scales by what lies together, which differs over",
               "parallel.tp",
               "parameters that all its ranks hold would drift apart: take bfloat16, or parallel.tp = 1");
  }
  if (!config.checkpoint.spread) {
    contradict(config, "compression.method", "leaves every worker with what it has not sent, which is lost with",
               "checkpoint.spread", "set checkpoint.spread = true");
  }
  if (config.parallel.is_asynchronous()) {
    contradict(config, "compression.method", "does not go with", "parallel.schedule", "take a synchronous schedule");
  }
  if (compression.method == "dgc" && (config.optimizer.kind != "sgd" || config.optimizer.momentum != 0)) {
    contradict(config, "compression.method", "brings its own momentum, for SGD without one, not", "optimizer.kind",
               "set optimizer.kind = \"sgd\" and optimizer.momentum = 0; compression.momentum takes its place");
  }
  if (compression.method == "onebit_adam") check_one_bit_adam(config);
  if (compression.method == "qsgd" && compression.bits != 1 && compression.bits != 2 && compression.bits != 4 &&
      compression.bits != 8) {
    throw UsageError(with_origin(config, "compression.bits") + " is not a number of bits that packs", "1, 2, 4 or 8");
  }
}

/// What takes the place of a plain all-reduce: Adasum, replicas that step alone.
void check_aggregation(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  const bool alone = config.local.method != "none";
  if (!alone && parallel.aggregation != "adasum") return;
  const std::string_view key = alone ? "local.method" : "parallel.aggregation";
  if (alone && parallel.aggregation != "average") {
    contradict(config, key, "sends no gradients, so there is nothing to do for", "parallel.aggregation",
               "set parallel.aggregation = \"average\"");
  }
  const auto refuse = [&](bool is_set, std::string_view problem, std::string_view other, const std::string& cure) {
    if (is_set) contradict(config, key, problem, other, cure);
  };
  const std::string_view whole = "is for replicas that hold the whole model, not with";
  refuse(parallel.pp > 1, whole, "parallel.pp", "set parallel.pp = 1");
  refuse(parallel.tp > 1, whole, "parallel.tp", "set parallel.tp = 1");
  refuse(parallel.zero > 0, whole, "parallel.zero", "set parallel.zero = 0");
  refuse(config.compression.method != "none", "sends gradients whole, not with", "compression.method",
         alone ? "set compression.method = \"none\"; local.format packs what DiLoCo sends"
               : "set compression.method = \"none\"");
  refuse(config.precision.gradients == "compute", "works on gradients in float32, not with", "precision.gradients",
         "set precision.gradients = \"float32\"");
  const LocalConfig& local = config.local;
  const bool shifted = local.after % local.every != 0;
  if (alone && config.checkpoint.every > 0 && (shifted || config.checkpoint.every % local.every != 0)) {
    contradict(config, "checkpoint.every", "falls between two meetings of replicas, with",
               shifted ? "local.after" : "local.every",
               fmt::format("nearest {}: {}", shifted ? "local.after" : "checkpoint.every",
                           nearest_multiples(shifted ? local.after : config.checkpoint.every, local.every)));
  }
  if (local.method == "diloco" && local.format != "float32" && !config.checkpoint.spread) {
    contradict(config, "local.format", "leaves every worker with what it has rounded away, which is lost with",
               "checkpoint.spread", "set checkpoint.spread = true");
  }
}

void check_run(const Config& config) {
  const OptimizerConfig& optimizer = config.optimizer;
  // That of a preset, or of a file, may be longer than a run that was cut short on the command line; and a run folder's
  // file says so of a run that went well.
  const bool chosen = config.origins.of("optimizer.warmup_steps") == "command line";
  if (chosen && optimizer.warmup_steps > config.train.steps) {
    contradict(config, "optimizer.warmup_steps", "is more than", "train.steps",
               fmt::format("set it to {} or less", config.train.steps));
  }
  if (optimizer.schedule == "step" && optimizer.step_every == 0) {
    contradict(config, "optimizer.schedule", "needs a number of steps, but", "optimizer.step_every",
               "set optimizer.step_every to 1 or more");
  }
  if (optimizer.kind == "sgd" && optimizer.nesterov && optimizer.momentum == 0) {
    contradict(config, "optimizer.nesterov", "looks ahead along a momentum, but", "optimizer.momentum",
               "set optimizer.momentum, 0.9 for example");
  }
  const std::string& name = config.observe.name;
  if (name == "." || name == ".." || name.find('/') != std::string::npos) {
    throw UsageError(with_origin(config, "observe.name") + " is not the name of a folder",
                     "set observe.run_dir to choose the whole path");
  }
}

/// "parallel.tp = 2, parallel.pp = 4": those over 1 that workers_of_replica() multiplies.
std::string degrees_of_replica(const ParallelConfig& parallel) {
  std::string text;
  for (const auto& [key, degree] :
       {std::pair{"parallel.tp", parallel.tp}, {"parallel.pp", parallel.pp}, {"parallel.cp", parallel.cp}}) {
    if (degree > 1) text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", key, degree);
  }
  return text;
}

/// The replicas: as set, or what the other degrees leave of the workers.
int64_t resolve_dp(const Config& config, int64_t world_size) {
  if (world_size < 1) throw UsageError(fmt::format("{} workers are not a number of workers", world_size));
  const ParallelConfig& parallel = config.parallel;
  if (parallel.dp == 0) {
    throw UsageError(with_origin(config, "parallel.dp") + " is not a number of workers",
                     "1 or more; -1 is the rest of the workers");
  }
  const int64_t others = workers_of_replica(config);
  const std::string text = degrees_of_replica(parallel);
  if (!parallel.stages.empty()) {
    const std::vector<StageDegrees> stages = stage_degrees(config);
    if (num_workers(stages) == world_size) return num_lanes(stages);
    throw UsageError(
        fmt::format("{} needs {} workers, but there are {}", with_origin(config, "parallel.stages"),
                    num_workers(stages), world_size),
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
    throw UsageError(fmt::format("{}{}{} needs {} workers, but there are {}", with_origin(config, "parallel.dp"),
                                 text.empty() ? "" : " with ", text, needed, world_size),
                     fmt::format("start {} workers (--nproc {} on one machine), or leave parallel.dp at -1: the rest",
                                 needed, needed));
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
    throw UsageError(with_origin(config, key) + " is not a number of workers", "1 or more; only parallel.dp may be -1");
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
    throw UsageError(with_origin(config, "model.depth") + " is not a ResNet", "there are 18, 34, 50 and 101");
  }
}

void check_tensor_parallel(const ModelConfig& model, int64_t ranks, std::string_view key) {
  const auto demand = [&](bool holds, std::string_view what, int64_t value, const std::string& cure) {
    if (holds) return;
    throw UsageError(fmt::format("{} = {} cannot be split over {} = {}", what, value, key, ranks), cure);
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

BatchPlan check_sizes(const Config& config, int64_t world_size) {
  check_model(config);
  check_data(config);
  check_recompute(config);
  check_precision(config);
  check_run(config);
  check_parallel(config);
  check_stage_degrees(config);
  check_pipeline(config);
  const BatchPlan plan = plan_batch(config, resolve_dp(config, world_size));
  check_own_schedule(config, plan);
  return plan;
}

BatchPlan check(const Config& config, int64_t world_size) {
  refuse_absent(config);
  const BatchPlan plan = check_sizes(config, world_size);
  refuse_pairs(config);
  check_shares(config);
  check_asynchronous(config);
  check_zero(config, plan.dp);
  check_compression(config);
  check_aggregation(config);
  check_servers(config);
  return plan;
}

Config with_plan(Config config, const BatchPlan& plan) {
  if (config.parallel.dp == -1) {
    config.parallel.dp = plan.dp;
    config.origins.set("parallel.dp", "derived");
  }
  if (config.train.leaves == 0) {
    config.train.leaves = plan.leaves;
    config.origins.set("train.leaves", "derived");
  }
  return config;
}

}  // namespace trireme
