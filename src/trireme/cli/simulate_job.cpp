#include "trireme/cli/simulate_job.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/config/recompute.h"

namespace trireme::cli {
namespace {

/// Of the numbers, that top-k sends unless asked otherwise: see docs/cost_model.md.
constexpr double kTopKShare = 0.001;

std::string long_name(std::string_view key, const std::string& value) {
  if (key == "model.kind" && value == "gpt") return "gpt2";
  if (key == "precision.compute" && (value == "fp16" || value == "fp32" || value == "bf16")) {
    return std::string(name_of(number_type(value)));
  }
  return value;
}

ModelShape shape_of(const ModelConfig& m, const SimulateFlags& flags) {
  ModelShape shape;
  shape.kind = m.kind == ModelKind::kGpt2    ? ShapeKind::kGpt
               : m.kind == ModelKind::kLlama ? ShapeKind::kLlama
               : m.kind == ModelKind::kMlp   ? ShapeKind::kMlp
                                             : ShapeKind::kResNet;
  shape.layers = m.layers;
  shape.hidden = m.hidden;
  shape.heads = m.heads;
  shape.kv_heads = m.kind == ModelKind::kLlama ? m.kv_heads : m.heads;
  shape.ffn = m.ffn;
  shape.seq = m.seq;
  shape.vocab = m.vocab;
  shape.tied = m.tied;
  shape.experts = flags.experts;
  shape.active_experts = flags.active_experts;
  shape.depth = m.depth;
  shape.channels = m.channels;
  shape.image = m.image;
  shape.classes = m.classes;
  return shape;
}

/// Replicas: as set, or what the other degrees leave of the devices.
int64_t replicas_of(const ParallelConfig& p, int64_t gpus) {
  for (const auto& [key, degree] : {std::pair{"tp", p.tp}, {"pp", p.pp}, {"cp", p.cp}, {"ep", p.ep}}) {
    if (degree < 1)
      throw UsageError(fmt::format("parallel.{} = {} is not a number of ranks", key, degree), "1 or more");
  }
  const int64_t others = p.tp * p.pp * p.cp;
  if (p.dp == 0) throw UsageError("parallel.dp = 0 is not a number of replicas", "1 or more; -1 is the rest");
  if (p.dp > 0) {
    if (gpus > 0 && gpus != others * p.dp) {
      throw UsageError(fmt::format("dp {} x tp {} x pp {} x cp {} are {} devices, but --gpus is {}", p.dp, p.tp, p.pp,
                                   p.cp, others * p.dp, gpus),
                       fmt::format("leave parallel.dp at -1, or give --gpus {}", others * p.dp));
    }
    return p.dp;
  }
  if (gpus == 0) return 1;
  if (gpus % others != 0) {
    throw UsageError(
        fmt::format("--gpus {} cannot be split by tp {} x pp {} x cp {} = {}", gpus, p.tp, p.pp, p.cp, others),
        fmt::format("nearest: {} or {}", std::max(gpus / others, int64_t{1}) * others, (gpus / others + 1) * others));
  }
  return gpus / others;
}

void set_compression(const Config& config, JobLayout& layout) {
  const std::string& method = config.compression.method;
  const double bytes = layout.gradient_bytes();
  if (method == "float16") layout.wire_factor = std::min(1.0, 2 / bytes);
  if (method == "topk") {
    const double share = config.origins.is_default("compression.density") ? kTopKShare : config.compression.density;
    layout.wire_factor = share * 8 / bytes;  // a number and its place
    layout.sparse_exchange = true;
  }
  if (method == "powersgd") {
    layout.wire_factor =
        std::min(1.0, static_cast<double>(config.compression.rank) * 2 / static_cast<double>(config.model.hidden));
  }
}

}  // namespace

std::vector<std::string> translate_words(std::vector<std::string> words, std::string& schedule) {
  std::vector<std::string> kept;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const size_t equals = word.find('=');
    const bool has_value = equals != std::string::npos;
    const bool takes_next = !has_value && i + 1 < words.size() && !words[i + 1].starts_with("--");
    if (!word.starts_with("--") || (!has_value && !takes_next)) {
      kept.push_back(word);
      continue;
    }
    const std::string key = word.substr(2, has_value ? equals - 2 : std::string::npos);
    const std::string value = has_value ? word.substr(equals + 1) : words[++i];
    if (key == "parallel.schedule") {
      schedule = value;
      continue;
    }
    kept.push_back(fmt::format("--{}={}", key, long_name(key, value)));
  }
  return kept;
}

Job job_of(const Config& config, const SimulateFlags& flags, const std::string& schedule,
           const std::vector<Cluster>& kinds) {
  if (!config.parallel.plan.empty()) {
    throw UsageError(fmt::format("parallel.plan = \"{}\": a plan is not simulated here", config.parallel.plan),
                     "give the degrees: parallel.dp, tp, pp, cp");
  }
  Job job;
  job.model = shape_of(config.model, flags);
  JobLayout& l = job.layout;
  const ParallelConfig& p = config.parallel;
  l.tp = p.tp;
  l.pp = p.pp;
  l.cp = p.cp;
  l.ep = p.ep;
  l.dp = replicas_of(p, flags.gpus);
  l.zero = static_cast<int>(p.zero);
  l.sequence = p.sequence && p.tp > 1;
  l.schedule = schedule_kind(schedule.empty() ? p.schedule : schedule);
  l.interleave = p.interleave;
  if (l.schedule == ScheduleKind::kInterleaved && l.interleave == 1) l.interleave = 2;
  l.micro_batch = config.train.micro_batch;
  l.global_batch = config.train.global_batch;
  const Recompute recompute = parse_recompute(config.train.recompute);
  l.recompute = recompute.all         ? RecomputeKind::kFull
                : recompute.attention ? RecomputeKind::kSelective
                                      : RecomputeKind::kNone;
  l.full_layers = recompute.ranges;
  l.compute = number_type(config.precision.compute);
  l.fp8_products = config.precision.matmul == "fp8";
  // Unless asked for, gradients are counted in the compute type: the 16 bytes a parameter of the ZeRO paper.
  l.float32_gradients = config.precision.gradients == "float32" && !config.origins.is_default("precision.gradients") &&
                        l.compute != NumberType::kFloat32;
  const OptimizerConfig& optimizer = config.optimizer;
  l.optimizer_state = optimizer.kind == "sgd" ? (optimizer.momentum > 0 ? 4 : 0) : 8;
  if (!config.origins.is_default("parallel.bucket_mb")) l.bucket_bytes = p.bucket_mb * 1024 * 1024;
  if (!config.origins.is_default("parallel.overlap")) l.overlap = p.overlap;
  if (flags.attention != "auto") l.flash = flags.attention == "flash";
  set_compression(config, l);
  for (const Cluster& cluster : kinds) {
    if (cluster.device.peak(l.compute) <= 0) {
      throw UsageError(fmt::format("{} has no products in {}", cluster.device.name, name_of(l.compute)),
                       "choose another precision.compute");
    }
    if (l.fp8_products && cluster.device.peak(NumberType::kFp8) <= 0) {
      throw UsageError(fmt::format("{} has no products in fp8", cluster.device.name),
                       "leave precision.matmul at compute");
    }
  }
  return job;
}

}  // namespace trireme::cli
