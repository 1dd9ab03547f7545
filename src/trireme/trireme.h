// The library in one include.
#pragma once

#include "trireme/base/error.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/types.h"
#include "trireme/comm/world.h"
