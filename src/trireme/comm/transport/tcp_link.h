// Bytes between two ranks over TCP: one authenticated connection for each direction, opened when it is first needed.
#pragma once

#include "trireme/comm/control/control.h"
#include "trireme/comm/transport/link.h"

namespace trireme {

/// `channel` is equal at both ends and different for each group. Opening a connection takes at most `open_timeout`.
std::unique_ptr<Link> make_tcp_link(ControlPlane& control, int peer_world_rank, uint64_t channel,
                                    Clock::duration open_timeout);

}  // namespace trireme
