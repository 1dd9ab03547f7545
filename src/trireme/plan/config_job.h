// Converts a configuration, with the keys of `trireme train`, to the job that the simulator takes.
#pragma once

#include <string>

#include "trireme/config/config.h"
#include "trireme/simulate/simulate.h"

namespace trireme {

/// Returns the job of a configuration, a function of its values alone. The layout's dp is 1 if parallel.dp is -1; the
/// caller, who knows the devices, sets it. Software other than kTrireme reduces gradients in the compute dtype and, if
/// parallel.zero_accumulation is auto, scatters those of ZeRO-2 and 3 after each micro-batch. Throws UsageError that
/// names the key.
Job job_of(const Config& config, Software software);

/// Sets the layout's bytes on the wire for compression.method = `method`. Methods that the simulator does not model
/// count as uncompressed.
void set_compression(const Config& config, Method method, Layout& layout);

/// Throws UsageError if the devices do not support the layout's dtypes.
void check_types(const Layout& layout, const Cluster& cluster);

}  // namespace trireme
