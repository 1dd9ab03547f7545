#include "trireme/config/layout_of.h"

#include <algorithm>

#include "trireme/base/text.h"
#include "trireme/config/batch_plan.h"
#include "trireme/config/pipeline.h"
#include "trireme/config/recompute.h"
#include "trireme/config/stages.h"
#include "trireme/program/schedules/schedule_csv.h"

namespace trireme {
namespace {

void set_stages(const Config& config, Layout& l) {
  const ParallelConfig& p = config.parallel;
  l.tp = p.tp;
  l.pp = p.pp;
  l.cp = p.cp;
  l.ep = p.ep;
  l.stages = stage_degrees(config);
  l.dp = p.dp > 0 ? p.dp : num_lanes(l.stages);
  l.sequence = p.sequence && (p.tp > 1 || !l.stages.empty());
  if (p.pp > 1 && !config.model.is_own()) l.split = split_of(config, num_layers(config.model));
  if (p.has_own_schedule()) {
    l.own_schedule = read_schedule(p.schedule);
  } else {
    l.schedule = schedule_kind(p.schedule);
  }
  l.interleave = takes_interleave(l.schedule) ? stages_per_rank(l.schedule, p.interleave) : p.interleave;
  l.update_every = p.update_every;
}

void set_sharding(const Config& config, Layout& l) {
  const ParallelConfig& p = config.parallel;
  l.zero = static_cast<int>(p.zero);
  l.zero_shards = p.zero > 0 ? p.zero_shards : 0;
  l.zero_keep = p.zero_keep;
  l.zero_sums_whole = p.zero_accumulation != ZeroAccumulation::kFractions;
  l.offload = !p.offload.empty();
  l.offload_weights = p.offload_weights;
  if (p.aggregation == Aggregation::kServer) {
    l.servers = config.server.count;
    l.exchange =
        config.server.mode == server::Mode::kSynchronous ? GradientExchange::kServers : GradientExchange::kAsyncServers;
  } else if (config.local.method != LocalMethod::kNone) {
    l.exchange = GradientExchange::kLocal;
    l.meet_every = config.local.every;
    const bool is_packed = config.local.method == LocalMethod::kDiloco && config.local.format != OuterFormat::kFloat32;
    if (is_packed) l.exchange_bytes = bits_per_element(*block_format(config.local.format)) / 8;
  } else if (p.aggregation == Aggregation::kAdasum) {
    l.exchange = GradientExchange::kAdasum;
  } else if (config.compression.method == Method::kOneBitAdam) {
    l.exchange = GradientExchange::kMomenta;
    l.exchange_bytes = bits_per_element(CompressionOptions{.method = Method::kOneBitAdam}) / 8;
  }
  l.bucket_bytes = p.bucket_mb * 1024 * 1024;
}

void set_types(const Config& config, Layout& l) {
  l.recompute = parse_recompute(config.train.recompute);
  l.compute = config.precision.compute;
  l.fp8_products = config.precision.matmul == MatmulType::kFp8;
  l.float32_gradients = config.precision.gradients == GradientType::kFloat32 && l.compute != NumberType::kFloat32;
  const OptimizerConfig& optimizer = config.optimizer;
  l.optimizer_state = optimizer.kind == OptimizerKind::kSgd ? (optimizer.momentum > 0 ? 4 : 0) : 8;
  l.compression = config.compression.method;
}

}  // namespace

Layout layout_of(const Config& config) {
  Layout layout;
  set_stages(config, layout);
  layout.global_batch = config.train.global_batch;
  layout.micro_batch = config.train.micro_batch;
  layout.leaves = config.train.leaves;
  layout.batch_parts = batch_parts_of(config);
  set_sharding(config, layout);
  set_types(config, layout);
  return layout;
}

std::vector<std::pair<const char*, Value>> keys_of(const Layout& l) {
  std::vector<std::string> batch_parts;
  for (const int64_t batch_part : l.batch_parts) batch_parts.push_back(std::to_string(batch_part));
  return {{"parallel.dp", l.dp},
          {"parallel.tp", l.tp},
          {"parallel.pp", l.pp},
          {"parallel.cp", l.cp},
          {"parallel.ep", l.ep},
          {"parallel.zero", int64_t{l.zero}},
          {"parallel.sequence", l.sequence},
          {"parallel.schedule", std::string(l.schedule_name())},
          {"parallel.interleave", l.interleave},
          {"parallel.split", partition_to_text(l.split)},
          {"parallel.stages", stages_to_text(l.stages)},
          {"parallel.shares", join(batch_parts, ",")},
          {"train.global_batch", l.global_batch},
          {"train.micro_batch", l.micro_batch},
          {"train.leaves", l.leaves},
          {"train.recompute", l.recompute.to_string()},
          {"precision.compute", std::string(name_of(l.compute))},
          {"compression.method", std::string(name_of(l.compression))}};
}

}  // namespace trireme
