// From a configuration to the job that the simulator plays: the keys of `train`, as simulate/ knows them.
#pragma once

#include <string>

#include "trireme/config/config.h"
#include "trireme/simulate/simulate.h"

namespace trireme {

ModelShape shape_of(const ModelConfig& model);

/// Everything but parallel.dp, which stays 1 where it is -1: who knows the devices sets it. Throws UsageError that
/// names the key.
Job job_of(const Config& config);

/// The configuration whose job is what the trainer does. Unless precision.gradients is given, job_of() counts as
/// published tables do: gradients in the compute type, ZeRO-3 by eager PyTorch; the trainer has its own default and
/// software. A cluster that was measured with the trainer has that in its constants.
Config as_trained(const Config& config, const Cluster& cluster);

/// What compression.method = `method` does to the bytes on the wire. Methods that the simulator does not know change
/// nothing.
void set_compression(const Config& config, const std::string& method, JobLayout& layout);

/// Why the trainer does not compress the gradients of the configuration, where compression.method says so; empty where
/// it does, or none is named.
std::string why_not_compressed(const Config& config);
/// The same where compression may be chosen.
std::string why_not_compressible(const Config& config);

/// Throws UsageError where the devices have no such products.
void check_types(const JobLayout& layout, const Cluster& cluster);

}  // namespace trireme
