#include "trireme/train/updates/policies.h"

#include "trireme/train/servers/server_aggregation.h"
#include "trireme/train/updates/host_update.h"

namespace trireme {

std::unique_ptr<UpdatePolicy> make_update_policy(const UpdateContext& context) {
  const Program& program = context.executor.program();
  const GradientExchange exchange = program.update.exchange;
  if (program.update.has_servers()) return std::make_unique<ServerAggregation>(context);
  const ParameterStore& parameters = context.part.parameters();
  std::shared_ptr<DeviceUpdate> on_device;
  if (parameters.device().is_cuda() && !parameters.masters_on_host()) {
    on_device = std::make_shared<DeviceUpdate>(context.config, context.part);
  }
  std::shared_ptr<WeightUpdate> weights = on_device;
  if (!weights) weights = std::make_shared<WeightUpdate>(context.config, context.part);
  if (program.num_updates > 1) return make_stages(context, weights);
  if (exchange == GradientExchange::kLocal) return make_local_steps(context, weights);
  if (exchange == GradientExchange::kAdasum) return make_adasum(context, weights);
  std::unique_ptr<UpdatePolicy> plain =
      on_device ? make_enqueued(context, on_device) : std::make_unique<HostUpdate>(context, weights);
  if (exchange == GradientExchange::kMomenta) return make_one_bit_adam(context, weights, std::move(plain));
  return plain;
}

}  // namespace trireme
