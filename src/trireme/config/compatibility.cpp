#include "trireme/config/compatibility.h"

#include <fmt/format.h>

#include "trireme/base/text.h"
#include "trireme/config/pipeline.h"
#include "trireme/config/recompute.h"
#include "trireme/config/value.h"
#include "trireme/program/schedules/schedule_csv.h"

namespace trireme {
namespace {

/// "= fp8", "> 1", "not none".
template <typename Type>
std::string words_of(std::string_view sign, const Type& value) {
  const std::string_view word = sign == "==" ? "=" : sign == "!=" ? "not" : sign;
  if constexpr (Named<Type>) {
    return fmt::format("{} {}", word, name_of(value));
  } else {
    return fmt::format("{} {}", word, value);
  }
}

// The key of a condition is the name of a member, so the compiler rejects one without the other.
#define KEY_OF(section, member) \
  (static_cast<void>(&std::remove_reference_t<decltype(Config::section)>::member), #section "." #member)
#define WHEN(section, member, sign, value)                                                                       \
  Condition {                                                                                                    \
    KEY_OF(section, member), words_of(#sign, value), [](const Config& c) { return c.section.member sign value; } \
  }
#define WHERE(section, member, words, test)                                      \
  Condition {                                                                    \
    KEY_OF(section, member), words, [](const Config& c) -> bool { return test; } \
  }

/// "= onebit_adam or powersgd": the methods for which `holds` is true.
std::string methods_where(bool (*holds)(Method)) {
  std::vector<std::string_view> names;
  for (const std::string_view name : all_names<Method>()) {
    if (holds(named<Method>(name).value())) names.push_back(name);
  }
  return "= " + join(names, " or ");
}

bool has_files(const Config& c) {
  return c.data.kind == DataKind::kText || c.data.kind == DataKind::kTokens || c.data.kind == DataKind::kImages;
}

bool averages(const Config& c) {
  return c.parallel.aggregation == Aggregation::kAverage || c.parallel.aggregation == Aggregation::kSum;
}

bool recomputes_parts(const Config& c) {
  const Recompute again = parse_recompute(c.train.recompute);
  return again.kind == RecomputeKind::kSelective || !again.ranges.empty();
}

/// Whether there is a pipeline whose schedule splits the backward pass.
bool halves_backward(const Config& c) {
  if (c.parallel.pp == 1) return false;
  if (const auto kind = named_schedule(c.parallel)) return splits_backward(*kind);
  return splits_backward(read_schedule(c.parallel.schedule));
}

bool takes_interleave(const Config& c) {
  const auto kind = named_schedule(c.parallel);
  return kind && takes_interleave(with_interleave(*kind, c.parallel.interleave));
}

bool has_several_stages_per_rank(const Config& c) {
  const auto kind = named_schedule(c.parallel);
  return kind && stages_per_rank(*kind) > 1;
}

// Conditions that several rules use.

const Condition kModelTakesNoTokens = WHERE(model, kind, "without tokens", !c.model.takes_tokens());
const Condition kModelTakesTokens = WHERE(model, kind, "with tokens", c.model.takes_tokens());
const Condition kNotLanguage = WHERE(model, kind, "not gpt2 or llama", !c.model.is_language());
const Condition kTied = WHERE(model, tied, "= true", c.model.is_language() && c.model.tied);
const Condition kSyncStatistics = WHERE(model, sync_statistics, "= true", c.model.sync_statistics);
const Condition kClips = WHEN(train, clip, >, 0);
const Condition kSgd = WHEN(optimizer, kind, ==, OptimizerKind::kSgd);

const Condition kNoTensorParallel = WHEN(parallel, tp, ==, 1);
const Condition kTensorParallel = WHEN(parallel, tp, >, 1);
const Condition kNoPipeline = WHEN(parallel, pp, ==, 1);
const Condition kPipeline = WHEN(parallel, pp, >, 1);
const Condition kZero = WHEN(parallel, zero, >, 0);
const Condition kNotZero3 = WHEN(parallel, zero, <, 3);
const Condition kZero3 = WHEN(parallel, zero, ==, 3);
const Condition kFractions = WHERE(parallel, shares, "given", !c.parallel.shares.empty());
const Condition kStages = WHERE(parallel, stages, "given", !c.parallel.stages.empty());
const Condition kOwnSchedule = WHERE(parallel, schedule, "a file", c.parallel.has_own_schedule());
const Condition kHalves = WHERE(parallel, schedule, "that cuts the backward pass in two", halves_backward(c));
const Condition kAsynchronous = WHERE(parallel, schedule, "asynchronous", c.parallel.is_asynchronous());
const Condition kWeightsElsewhere = WHERE(parallel, offload_weights, "= true", c.parallel.offload_weights);
const Condition kAdasum = WHEN(parallel, aggregation, ==, Aggregation::kAdasum);
const Condition kNoAverage = WHERE(parallel, aggregation, "not average or sum", !averages(c));
const Condition kServers = WHEN(parallel, aggregation, ==, Aggregation::kServer);
const Condition kLocal = WHEN(local, method, !=, LocalMethod::kNone);

const Condition kFloat16 = WHEN(precision, compute, ==, NumberType::kFloat16);
const Condition kFp8 = WHEN(precision, matmul, ==, MatmulType::kFp8);
const Condition kGradientsInCompute = WHEN(precision, gradients, ==, GradientType::kCompute);
const Condition kCompressed = WHEN(compression, method, !=, Method::kNone);
const Condition kOneBitAdam = WHEN(compression, method, ==, Method::kOneBitAdam);
const Condition kGather = WHEN(compression, gather, !=, GatherFormat::kNone);
const Condition kSpreadOff = WHERE(checkpoint, spread, "= false", !c.checkpoint.spread);
const Condition kRows =
    WHERE(server, rows, "= true, with servers", c.parallel.aggregation == Aggregation::kServer && c.server.rows);

constexpr std::string_view kNoFp8 = "set precision.matmul = \"compute\"", kNoTp = "set parallel.tp = 1",
                           kNoZero = "set parallel.zero = 0", kAverage = "set parallel.aggregation = \"average\"",
                           kFloat32 = "set precision.gradients = \"float32\"",
                           kNotCompressed = "set compression.method = \"none\"";
constexpr std::string_view kAlike = "need replicas that are alike for",
                           kWhole = "is for replicas that hold the whole model, not with",
                           kAllStages = "needs all stages at each update, and there is none such with";

const std::vector<Rule> kEvery = {
    {WHERE(data, kind, "= text, tokens or images", has_files(c)), "needs files, but data.path is empty",
     WHERE(data, path, "empty", c.data.path.empty()), "give --data.path, or data.kind = \"generated\"", false},
    {WHEN(data, kind, ==, DataKind::kGenerated), "reads no files, but",
     WHERE(data, path, "given", !c.data.path.empty()), "set one of them only"},
    {WHEN(data, kind, ==, DataKind::kImages), "cannot train", kModelTakesTokens, "images are for resnet and mlp"},
    {WHERE(data, kind, "= text or tokens", c.data.kind == DataKind::kText || c.data.kind == DataKind::kTokens),
     "cannot train", kModelTakesNoTokens, "text and tokens are for gpt2 and llama"},
    {WHEN(model, vocab, <, 256), "is less than the 256 bytes of a text",
     WHERE(data, kind, "= text, without a tokenizer", c.data.kind == DataKind::kText && c.data.tokenizer.empty()),
     "set model.vocab to 256, or give data.tokenizer", false},

    {WHERE(train, recompute, "= selective", parse_recompute(c.train.recompute) == RecomputeKind::kSelective),
     "computes attention again, which is not in", kNotLanguage,
     "set train.recompute to full, or to the numbers of layers"},

    {kFp8, "needs a GPU, not", WHEN(train, device, !=, DeviceKind::kCuda), "set train.device = \"cuda\""},
    {kFp8, "stands beside bfloat16, not", WHEN(precision, compute, !=, NumberType::kBfloat16),
     "set precision.compute = \"bfloat16\": everything but those products is computed in it"},
    {kFp8, "is for gpt2 and llama, not", kNotLanguage, kNoFp8},

    {WHEN(optimizer, schedule, ==, LrSchedule::kStep), "needs a number of steps, but",
     WHEN(optimizer, step_every, ==, 0), "set optimizer.step_every to 1 or more"},
    {WHERE(optimizer, nesterov, "= true, with sgd", c.optimizer.kind == OptimizerKind::kSgd && c.optimizer.nesterov),
     "looks ahead along a momentum, but", WHEN(optimizer, momentum, ==, 0), "set optimizer.momentum, 0.9 for example"},

    {WHERE(parallel, sequence, "= true, without stages of their own", c.parallel.stages.empty() && c.parallel.sequence),
     "splits norms over the ranks of a model, but", kNoTensorParallel, "set parallel.tp to 2 or more"},
    {WHERE(parallel, sequence, "= true", c.parallel.sequence), "is for gpt2 and llama, not", kModelTakesNoTokens,
     "leave it off"},

    {kStages, "says for each stage what all have by", WHEN(parallel, tp, !=, 1), "leave parallel.tp at 1"},
    {kStages, "are one for each worker, but several have", WHEN(parallel, interleave, >, 1),
     "take a schedule with one stage per worker, such as 1f1b"},
    {kStages, "are one for each worker, but several have",
     WHERE(parallel, schedule, "with several stages per worker", has_several_stages_per_rank(c)),
     "take a schedule with one stage per worker, such as 1f1b"},
    {kStages, kAlike, kNoAverage, kAverage},
    {kStages, kAlike, kCompressed, kNotCompressed},
    {kStages, kAlike, kGather, "set compression.gather = \"none\""},
    {kStages, kAlike, WHEN(parallel, cp, !=, 1), "set parallel.cp = 1"},
    {kStages, kAlike, WHEN(parallel, ep, !=, 1), "set parallel.ep = 1"},
    {kStages, kAlike, kLocal, "set local.method = \"none\""},
    {kStages, kAlike, kFractions, "leave parallel.shares empty"},
    {kStages, kAlike, WHEN(parallel, zero_shards, !=, 0), "leave it at 0: all replicas of a stage share"},
    {kStages, "let a worker compute for several replicas one after another, which meet inside a pass with",
     kSyncStatistics, "set model.sync_statistics = false"},

    {WHERE(parallel, split, "given", !c.parallel.split.empty()), "cuts the model into stages, but", kNoPipeline,
     "set parallel.pp to their number"},
    {kOwnSchedule, "orders the work of a pipeline, but", kNoPipeline, "set parallel.pp to the number of its rows"},
    {WHERE(parallel, interleave, "> 1, in a pipeline", c.parallel.interleave > 1 && c.parallel.pp != 1), "is not for",
     WHERE(parallel, schedule, "not interleaved", !takes_interleave(c)), "set the schedule to interleaved"},
    // Recomputing parts of a model runs autograd inside the backward pass, so no half of it can be delayed.
    {WHERE(train, recompute, "of parts", recomputes_parts(c)),
     "differentiates inside the backward pass, which is cut in two by", kHalves,
     "set train.recompute to full: stages are computed again as a whole"},
    {kZero3, "frees weights behind each layer, and the later half of the backward pass of", kHalves,
     "would gather them a third time: take 1f1b, or parallel.zero = 2"},
};

const std::vector<Rule> kTrainer = {
    // Pairs that could work but are not implemented yet.
    {kFp8, "does not go with", kTensorParallel, kNoFp8},
    {kFp8, "does not go with", kPipeline, kNoFp8},

    // Replicas with a larger batch part run extra passes on their own, so no pass may need all replicas.
    {kFractions, "are of replicas without stages, not of", kPipeline,
     "give faster workers of a pipeline more layers: parallel.split"},
    {kFractions, "let replicas come to a layer at different times, which all share with", kZero3,
     "set parallel.zero to 2 or less"},
    {kFractions, "let replicas have different micro-batches, which are summed one by one with",
     WHERE(parallel, zero_accumulation, "= shares, with zero 2",
           c.parallel.zero > 1 && c.parallel.zero_accumulation == ZeroAccumulation::kFractions),
     "set it to \"whole\""},
    {kFractions, "let replicas come to a norm at different times, which all meet at with", kSyncStatistics,
     "leave one of the two"},
    {kFractions, "are not counted by", kNoAverage, "set it to \"average\""},
    {kFractions, "are not counted by", kLocal, "set it to \"none\""},

    // Each stage is updated separately, so nothing can depend on all gradients of a step.
    {WHEN(parallel, update_every, !=, 0), "is for pipedream and pipedream-2bw, not",
     WHERE(parallel, schedule, "synchronous", !c.parallel.is_asynchronous()), "leave it at 0"},
    {kClips, kAllStages, kAsynchronous, "set train.clip = 0"},
    {kFloat16, kAllStages, kAsynchronous, "use bfloat16, which needs no loss scale"},
    {WHEN(train, on_nan, ==, OnNan::kSkip), kAllStages, kAsynchronous, "set train.on_nan to stop or rollback"},
    {kTied, kAllStages, kAsynchronous, "set model.tied = false"},

    {WHERE(parallel, offload, "= memory", c.parallel.offloads_to_memory()), "is the host's, where everything lies with",
     WHEN(train, device, ==, DeviceKind::kCpu), "leave parallel.offload empty, or name a folder"},
    {WHERE(parallel, offload, "given, on a GPU", !c.parallel.offload.empty() && c.train.device == DeviceKind::kCuda),
     "takes moments away from the GPU, where they are needed for", kOneBitAdam,
     "leave parallel.offload empty, or take compression.method = \"sign\""},
    {WHEN(parallel, zero_shards, >, 0), "says who shares, but nobody does with", WHEN(parallel, zero, ==, 0),
     "set parallel.zero = 1"},
    {WHERE(parallel, zero_keep, "= true", c.parallel.zero_keep), "is for weights that are shared, not with", kNotZero3,
     "set parallel.zero = 3"},
    {kWeightsElsewhere, "is for weights that come and go, not with", kNotZero3, "set parallel.zero = 3"},
    {kWeightsElsewhere, "has nowhere to lay them with", WHERE(parallel, offload, "empty", c.parallel.offload.empty()),
     "name a folder, or, on GPUs, set parallel.offload = \"memory\""},
    {WHEN(parallel, zero_accumulation, ==, ZeroAccumulation::kFractions), "is for gradients that are shared, not with",
     WHEN(parallel, zero, <, 2), "set parallel.zero = 2"},
    {kZero, "gathers weights once a step, which change more often with", kAsynchronous,
     "take a synchronous schedule, such as 1f1b"},
    {kFp8, "keeps copies of whole weights, not with", kZero, kNoFp8},

    {kGather, "packs weights that are gathered for each use, not with", kNotZero3, "set parallel.zero = 3"},
    {kGather, "rounds in blocks of a rank's shard, which differs across", kTensorParallel,
     "weights that all its ranks hold would differ: set parallel.tp = 1, or compression.gather = \"none\""},
    {kCompressed, "would store overflowed values in its residuals with", kFloat16, "use bfloat16"},
    {kCompressed, "says how gradients travel, and so does", kGradientsInCompute, kFloat32},
    // Servers hold a single copy of parameters that are replicated over tp ranks, so these cannot drift apart.
    {WHERE(compression, method, "not bfloat16, without servers",
           c.compression.method != Method::kNone && c.compression.method != Method::kBFloat16 &&
               c.parallel.aggregation != Aggregation::kServer),
     "selects and scales within a rank's shard, which differs across", kTensorParallel,
     "parameters that all its ranks hold would drift apart: take bfloat16, or parallel.tp = 1"},
    {kCompressed, "leaves every worker with what it has not sent, which is lost with", kSpreadOff,
     "set checkpoint.spread = true"},
    {kCompressed, "does not go with", kAsynchronous, "take a synchronous schedule"},
    {WHEN(compression, method, ==, Method::kDgc), "brings its own momentum, for SGD without one, not",
     WHERE(optimizer, kind, "not sgd without momentum",
           c.optimizer.kind != OptimizerKind::kSgd || c.optimizer.momentum != 0),
     "set optimizer.kind = \"sgd\" and optimizer.momentum = 0; compression.momentum takes its place"},
    {kOneBitAdam, "sends Adam's momentum, not that of", kSgd,
     "set optimizer.kind = \"adamw\", or take compression.method = \"sign\""},
    {kOneBitAdam, "needs the whole momentum and second moment on every replica, not with", kZero,
     "set parallel.zero = 0, or take compression.method = \"sign\""},
    {kOneBitAdam, "sums no gradients after its warm-up, so that nobody knows the norm for", kClips,
     "set train.clip = 0"},
    {kOneBitAdam, "freezes the second moment after a warm-up, which has no steps with",
     WHEN(compression, warmup_steps, ==, 0),
     "set it to a tenth or more of train.steps, and past optimizer.warmup_steps"},

    // Alternatives to a plain all-reduce: local updates, Adasum, parameter servers.
    {kLocal, "sends no gradients, so there is nothing to do for",
     WHEN(parallel, aggregation, !=, Aggregation::kAverage), kAverage},
    {kLocal, kWhole, kPipeline, "set parallel.pp = 1"},
    {kLocal, kWhole, kTensorParallel, kNoTp},
    {kLocal, kWhole, kZero, kNoZero},
    {kLocal, "sends gradients whole, not with", kCompressed,
     "set compression.method = \"none\"; local.format packs what DiLoCo sends"},
    {kLocal, "works on gradients in float32, not with", kGradientsInCompute, kFloat32},
    {WHERE(local, format, "= int8, with diloco",
           c.local.method == LocalMethod::kDiloco && c.local.format == OuterFormat::kInt8),
     "leaves every worker with what it has rounded away, which is lost with", kSpreadOff,
     "set checkpoint.spread = true"},
    {kAdasum, kWhole, kPipeline, "set parallel.pp = 1"},
    {kAdasum, kWhole, kTensorParallel, kNoTp},
    {kAdasum, kWhole, kZero, kNoZero},
    {kAdasum, "sends gradients whole, not with", kCompressed, kNotCompressed},
    {kAdasum, "works on gradients in float32, not with", kGradientsInCompute, kFloat32},
    {kServers, "has optimizer state and sums on the servers, and workers have nothing to share with", kZero,
     "set parallel.zero = 0: server.count says over how many the state is spread"},
    {kServers, "updates once a step, when all micro-batches are summed, not as", kAsynchronous,
     "take a synchronous schedule, such as 1f1b; server.mode lets replicas go apart"},
    {kServers, "needs a worker's gradients in one message, which rules out",
     WHERE(compression, method, methods_where([](Method method) { return !takes_one_message(method); }),
           !takes_one_message(c.compression.method)),
     "take one of the other methods, such as topk or sign"},
    {kServers, "sends weights layer by layer while a step computes, and 8-bit copies of all are made before it with",
     kFp8, kNoFp8},
    {kServers, "works on gradients in float32, not with", kGradientsInCompute,
     "set precision.gradients = \"float32\"; compression.method = \"bfloat16\" halves what travels"},
    {WHERE(server, replicate, "= true, with servers",
           c.parallel.aggregation == Aggregation::kServer && c.server.replicate),
     "needs a second server, but", WHEN(server, count, <, 2), "set server.count = 2"},
    {kRows, "is for the embedding of gpt2 and llama, not for", kNotLanguage, "set server.rows = false"},
    {kRows, "needs gradients of a few rows, and all rows have some with", kTied, "set model.tied = false"},
    {kRows, "needs the rows of a token in one place, and they are spread over", kTensorParallel,
     "set parallel.tp = 1, or server.rows = false"},
};

#undef WHERE
#undef WHEN
#undef KEY_OF

}  // namespace

const std::vector<Rule>& rules(RuleScope scope) { return scope == RuleScope::kEveryTraining ? kEvery : kTrainer; }

void check_rules(const Config& config, RuleScope scope, std::string_view key) {
  for (const Rule& rule : rules(scope)) {
    if ((!key.empty() && rule.one.key != key) || !rule.is_broken_by(config)) continue;
    if (!rule.names_other) refuse(config, rule.one.key, rule.reason, std::string(rule.cure));
    contradict(config, rule.one.key, rule.reason, rule.other.key, std::string(rule.cure));
  }
}

}  // namespace trireme
