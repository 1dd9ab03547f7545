#include "trireme/config/task.h"

#include "trireme/config/resolve.h"

namespace trireme {

bool is_same_task(const Config& a, const Config& b) {
  DataConfig data = a.data;
  data.cache = b.data.cache;  // affects only how data is read
  data.read_ahead = b.data.read_ahead;
  return a.model == b.model && data == b.data && a.train.steps == b.train.steps &&
         a.train.global_batch == b.train.global_batch;
}

bool has_target_of_preset(const Config& kept) {
  if (kept.model.preset.empty() || kept.train.target_loss == 0) return false;
  ConfigSources alone;
  alone.default_preset = kept.model.preset;
  const Config preset = resolve(alone);
  return kept.train.target_loss == preset.train.target_loss && is_same_task(kept, preset);
}

}  // namespace trireme
