// Factories of the policies that no other policy derives from; each is one file.
#pragma once

#include <memory>

#include "trireme/train/device_update.h"
#include "trireme/train/update_policy.h"
#include "trireme/train/weight_update.h"

namespace trireme {

std::unique_ptr<UpdatePolicy> make_enqueued(const UpdateContext& context, std::shared_ptr<DeviceUpdate> weights);
std::unique_ptr<UpdatePolicy> make_stages(const UpdateContext& context, std::shared_ptr<WeightUpdate> weights);
std::unique_ptr<UpdatePolicy> make_adasum(const UpdateContext& context, std::shared_ptr<WeightUpdate> weights);
std::unique_ptr<UpdatePolicy> make_local_steps(const UpdateContext& context, std::shared_ptr<WeightUpdate> weights);
/// `warmup` updates the same weights until the warm-up is over.
std::unique_ptr<UpdatePolicy> make_one_bit_adam(const UpdateContext& context, std::shared_ptr<WeightUpdate> weights,
                                                std::unique_ptr<UpdatePolicy> warmup);

}  // namespace trireme
