// How a rank becomes a member of its job: finds rank 0, proves itself, and waits for everybody else.
#pragma once

#include "trireme/comm/control/control_rank.h"
#include "trireme/comm/control/launch_environment.h"

namespace trireme::control {

/// Blocks until all ranks are there, at most `join_timeout`. Throws with cause and cure.
Joined join_job(const LaunchEnvironment& environment, Member self, const ControlOptions& options);

}  // namespace trireme::control
