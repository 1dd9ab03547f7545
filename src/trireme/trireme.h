// Ranks, what they do together, and parameter servers: the library without libtorch.
//
// The three umbrellas (this one, torch.h and plan.h) are the public surface: what they do not include may change at any
// time.
#pragma once

#include "trireme/base/error.h"         // IWYU pragma: export
#include "trireme/base/philox.h"        // IWYU pragma: export
#include "trireme/base/version.h"       // IWYU pragma: export
#include "trireme/comm/communicator.h"  // IWYU pragma: export
#include "trireme/comm/types.h"         // IWYU pragma: export
#include "trireme/comm/world.h"         // IWYU pragma: export
#include "trireme/server/server.h"      // IWYU pragma: export
#include "trireme/server/worker.h"      // IWYU pragma: export
