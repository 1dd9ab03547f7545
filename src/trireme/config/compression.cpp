#include "trireme/config/compression.h"

#include "trireme/config/value.h"

namespace trireme {

CompressionOptions compression_options(const Config& config) {
  const CompressionConfig& from = config.compression;
  CompressionOptions options;
  options.method = from.method;
  options.density = from.density;
  options.bits = static_cast<int>(from.bits);
  options.rank = static_cast<int>(from.rank);
  if (from.error_feedback != ErrorFeedback::kAuto) options.error_feedback = from.error_feedback == ErrorFeedback::kOn;
  options.warmup_steps = static_cast<uint64_t>(from.warmup_steps);
  options.momentum = static_cast<float>(from.momentum);
  options.clip_deviations = static_cast<float>(from.clip_deviations);
  options.seed = static_cast<uint64_t>(config.train.seed);
  return options;
}

void check_compression(const Config& config) {
  try {
    check(compression_options(config));
  } catch (const UsageError& error) {
    contradict(config, error.where().key, "does not go with", "compression.method", cure_of(error));
  }
}

}  // namespace trireme
