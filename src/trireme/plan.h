// Configurations, schedules, predictions and plans, without a GPU and without libtorch.
#pragma once

#include "trireme/config/resolve.h"       // IWYU pragma: export
#include "trireme/plan/config_job.h"      // IWYU pragma: export
#include "trireme/plan/search.h"          // IWYU pragma: export
#include "trireme/program/check/check.h"  // IWYU pragma: export
#include "trireme/program/draw.h"         // IWYU pragma: export
#include "trireme/program/pipeline.h"     // IWYU pragma: export
#include "trireme/program/timeline.h"     // IWYU pragma: export
#include "trireme/simulate/simulate.h"    // IWYU pragma: export
