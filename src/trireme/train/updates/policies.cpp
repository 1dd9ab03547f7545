#include "trireme/train/updates/policies.h"

#include "trireme/train/servers/server_aggregation.h"
#include "trireme/train/updates/host_update.h"

namespace trireme {

std::unique_ptr<UpdatePolicy> make_update_policy(const UpdateContext& context) {
  const Config& config = context.config;
  if (config.parallel.aggregation == Aggregation::kServer) return std::make_unique<ServerAggregation>(context);
  const ParameterStore& parameters = context.part.parameters();
  std::shared_ptr<DeviceUpdate> on_device;
  if (parameters.device().is_cuda() && !parameters.masters_on_host()) {
    on_device = std::make_shared<DeviceUpdate>(config, context.part);
  }
  std::shared_ptr<WeightUpdate> weights = on_device;
  if (!weights) weights = std::make_shared<WeightUpdate>(config, context.part);
  if (context.executor.program().num_updates > 1) return make_stages(context, weights);
  const bool has_replicas = context.groups.replicas() != nullptr;
  if (has_replicas && config.local.method != LocalMethod::kNone) return make_local_steps(context, weights);
  if (has_replicas && config.parallel.aggregation == Aggregation::kAdasum) return make_adasum(context, weights);
  std::unique_ptr<UpdatePolicy> plain =
      on_device ? make_enqueued(context, on_device) : std::make_unique<HostUpdate>(context, weights);
  if (!has_replicas || config.compression.method != Method::kOneBitAdam) return plain;
  return make_one_bit_adam(context, weights, std::move(plain));
}

}  // namespace trireme
