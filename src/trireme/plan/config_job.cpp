#include "trireme/plan/config_job.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/config/layout_of.h"
#include "trireme/config/stages.h"
#include "trireme/program/check/check.h"
#include "trireme/program/pipeline.h"

namespace trireme {
void set_compression(const Config& config, Method method, Layout& layout) {
  const double bytes = layout.gradient_bytes();
  layout.compression = method;
  layout.wire_factor = 1;
  layout.sparse_exchange = false;
  if (method == Method::kFloat16 || method == Method::kBFloat16) layout.wire_factor = std::min(1.0, 2 / bytes);
  if (method == Method::kTopK) {
    layout.wire_factor = config.compression.density * 6 / bytes;  // a float32 and a 16-bit position
    layout.sparse_exchange = true;
  }
  if (method == Method::kPowerSgd) {
    layout.wire_factor =
        std::min(1.0, static_cast<double>(config.compression.rank) * 2 / static_cast<double>(config.model.hidden));
  }
}

Job job_of(const Config& config, Software software) {
  if (config.model.is_own()) {
    throw UsageError(fmt::format("model.kind = {}: the planner and the simulator know the built-in kinds alone",
                                 config.model.name()),
                     "trireme bench train measures a library's model");
  }
  Job job{.model = config.model, .layout = layout_of(config), .software = software};
  Layout& l = job.layout;
  if (l.own_schedule) {
    const PipelineShape shape{.schedule = *l.own_schedule};
    check_programs(lower_pipeline_ranks(shape), shape.leaves());
  }
  if (!l.stages.empty()) check_stage_degrees(config);
  const ParallelConfig& parallel = config.parallel;
  if (software != Software::kTrireme) {
    // Published tables count gradients in the compute dtype: the ZeRO paper's 16 bytes per parameter. Measured
    // constants include the rest.
    l.float32_gradients = false;
    l.zero_sums_whole = parallel.zero_accumulation == ZeroAccumulation::kWhole;
  }
  set_compression(config, l.compression, l);
  if (parallel.overlap != Overlap::kAuto) job.overlap = parallel.overlap == Overlap::kOn;
  return job;
}

void check_types(const Layout& layout, const Cluster& cluster) {
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
