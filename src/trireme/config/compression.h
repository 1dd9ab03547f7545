// Gradient compression as a configuration asks for it.
#pragma once

#include "trireme/compress/method.h"
#include "trireme/config/config.h"

namespace trireme {

CompressionOptions compression_options(const Config& config);

/// Throws UsageError for a setting that compression.method does not take.
void check_compression(const Config& config);

}  // namespace trireme
