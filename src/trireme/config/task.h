// The task of a config: what is trained, apart from how. A target loss belongs to a task.
#pragma once

#include "trireme/config/config.h"

namespace trireme {

/// Whether both have the same model, data, steps and global batch. Layout and optimizer may differ.
bool is_same_task(const Config& a, const Config& b);

/// Whether a saved config has the target loss of its preset, and the task for which the preset set it. A user who
/// continues with another number of steps, or other data, has not asked for that target.
bool has_target_of_preset(const Config& kept);

}  // namespace trireme
