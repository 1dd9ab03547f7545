#include "trireme/plan/config_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/config/batch_plan.h"
#include "trireme/config/pipeline.h"
#include "trireme/config/recompute.h"
#include "trireme/config/stages.h"
#include "trireme/program/check/check.h"
#include "trireme/program/pipeline.h"
#include "trireme/program/schedules/schedule_csv.h"

namespace trireme {
namespace {

constexpr const char* kGradients = "precision.gradients";

}  // namespace

Config as_trained(const Config& config, const Cluster& cluster) {
  Config trained = config;
  const bool is_measured = cluster.stack.sums_in_tree;
  if (!is_measured && config.origins.is_default(kGradients)) trained.origins.set(kGradients, "the trainer's default");
  return trained;
}

ModelShape shape_of(const ModelConfig& m) {
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
  shape.depth = m.depth;
  shape.channels = m.channels;
  shape.image = m.image;
  shape.classes = m.classes;
  return shape;
}

void set_compression(const Config& config, const std::string& method, JobLayout& layout) {
  const double bytes = layout.gradient_bytes();
  layout.wire_factor = 1;
  layout.sparse_exchange = false;
  if (method == "float16" || method == "bfloat16") layout.wire_factor = std::min(1.0, 2 / bytes);
  if (method == "topk") {
    layout.wire_factor = config.compression.density * 8 / bytes;  // a number and its place
    layout.sparse_exchange = true;
  }
  if (method == "powersgd") {
    layout.wire_factor =
        std::min(1.0, static_cast<double>(config.compression.rank) * 2 / static_cast<double>(config.model.hidden));
  }
}

std::string why_not_compressible(const Config& config) {
  if (number_type(config.precision.compute) != NumberType::kFloat16) return "";
  return "the trainer does not compress gradients with precision.compute = \"float16\": its loss scale must see what "
         "overflows; bfloat16 needs none";
}

std::string why_not_compressed(const Config& config) {
  return config.compression.method == "none" ? "" : why_not_compressible(config);
}

Job job_of(const Config& config) {
  Job job;
  job.model = shape_of(config.model);
  JobLayout& l = job.layout;
  const ParallelConfig& p = config.parallel;
  l.dp = std::max<int64_t>(1, p.dp);
  l.tp = p.tp;
  l.pp = p.pp;
  l.cp = p.cp;
  l.ep = p.ep;
  l.zero = static_cast<int>(p.zero);
  l.zero_shards = p.zero > 0 ? p.zero_shards : 0;
  l.sequence = p.sequence && (p.tp > 1 || !p.stages.empty());
  if (p.has_own_schedule()) {
    l.own_schedule = read_schedule(p.schedule);
    const PipelineShape shape{.schedule = *l.own_schedule};
    check_programs(lower_pipeline_ranks(shape), shape.leaves());
  } else {
    l.schedule = schedule_kind(p.schedule);
  }
  l.interleave = p.interleave;
  if (l.schedule == ScheduleKind::kInterleaved && l.interleave == 1) l.interleave = 2;
  l.micro_batch = config.train.micro_batch;
  l.global_batch = config.train.global_batch;
  if (!p.shares.empty()) {
    l.shares = shares_of(config);
    const int64_t sum = std::accumulate(l.shares.begin(), l.shares.end(), int64_t{0});
    for (int64_t& share : l.shares) share *= std::max<int64_t>(1, l.global_batch / l.micro_batch / sum);
  }
  const Recompute recompute = parse_recompute(config.train.recompute);
  l.recompute = recompute.all         ? RecomputeKind::kFull
                : recompute.attention ? RecomputeKind::kSelective
                                      : RecomputeKind::kNone;
  l.full_layers = recompute.ranges;
  l.compute = number_type(config.precision.compute);
  l.fp8_products = config.precision.matmul == "fp8";
  // Unless asked for, gradients are counted in the compute type: the 16 bytes a parameter of the ZeRO paper.
  l.as_trained = !config.origins.is_default(kGradients);
  l.float32_gradients = config.precision.gradients == "float32" && l.as_trained && l.compute != NumberType::kFloat32;
  const OptimizerConfig& optimizer = config.optimizer;
  l.optimizer_state = optimizer.kind == "sgd" ? (optimizer.momentum > 0 ? 4 : 0) : 8;
  l.bucket_bytes = p.bucket_mb * 1024 * 1024;
  if (!config.origins.is_default("parallel.overlap")) l.overlap = p.overlap;
  l.offload = !p.offload.empty();
  l.offload_weights = p.offload_weights;
  if (p.aggregation == "server") l.servers = config.server.count;
  set_compression(config, config.compression.method, l);
  if (!p.split.empty() && p.pp > 1) {
    for (const LayerRange& range : partition_from_text(p.split, num_layers(config.model))) {
      l.stages.push_back({.blocks = range});
    }
  }
  if (const std::vector<StageDegrees> degrees = stage_degrees(config); !degrees.empty()) {
    check_stage_degrees(config);
    l.dp = num_lanes(degrees);
    if (!l.stages.empty() && l.stages.size() != degrees.size()) {
      throw UsageError(fmt::format("parallel.split = \"{}\" has {} stages, and parallel.stages = \"{}\" has {}",
                                   p.split, l.stages.size(), p.stages, degrees.size()),
                       "name the layers of each stage");
    }
    l.stages.resize(degrees.size());
    for (size_t i = 0; i < degrees.size(); ++i) {
      l.stages[i].dp = degrees[i].dp;
      l.stages[i].tp = degrees[i].tp;
    }
  }
  return job;
}

void check_types(const JobLayout& layout, const Cluster& cluster) {
  if (cluster.device.peak(layout.compute) <= 0) {
    throw UsageError(fmt::format("{} has no products in {}", cluster.device.name, name_of(layout.compute)),
                     "choose another precision.compute");
  }
  if (layout.fp8_products && cluster.device.peak(NumberType::kFp8) <= 0) {
    throw UsageError(fmt::format("{} has no products in fp8", cluster.device.name),
                     "leave precision.matmul at compute");
  }
}

}  // namespace trireme
