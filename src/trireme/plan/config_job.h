// From a configuration to the job that the simulator plays: the keys of `train`, as simulate/ knows them.
#pragma once

#include <string>

#include "trireme/config/config.h"
#include "trireme/simulate/simulate.h"

namespace trireme {

/// Everything but parallel.dp, which stays 1 where it is -1: who knows the devices sets it. Others than
/// Trireme's trainer sum gradients in the compute type, and scatter those of ZeRO-2 and 3 at each micro-batch unless
/// parallel.zero_accumulation is given. Throws UsageError that names the key.
Job job_of(const Config& config, Software software);

/// What compression.method = `method` does to the bytes on the wire. Methods that the simulator does not know change
/// nothing.
void set_compression(const Config& config, Method method, Layout& layout);

/// Throws UsageError where the devices have no such products.
void check_types(const Layout& layout, const Cluster& cluster);

}  // namespace trireme
