// What a config trains, apart from how: the task that a target belongs to.
#pragma once

#include "trireme/config/config.h"

namespace trireme {

/// Whether both learn the same from as much: model, data, steps and batch. Layout and optimizer may differ.
bool is_same_task(const Config& a, const Config& b);

/// Whether a config that a run keeps aims at the target of its preset, on the task that the preset chose it for.
/// Whoever goes on with another number of steps, or other data, has not asked for that target.
bool has_target_of_preset(const Config& kept);

}  // namespace trireme
