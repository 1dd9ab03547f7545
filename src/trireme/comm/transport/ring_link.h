// Bytes between two ranks of one host: a ring in shared memory for each direction.
#pragma once

#include <vector>

#include "trireme/comm/host/address_space.h"
#include "trireme/comm/transport/link.h"

namespace trireme {

struct RingEnds {
  AddressSpace* space;
  Mailbox* own_mailbox;
  Mailbox* peer_mailbox;
  int own_group_rank, peer_group_rank, peer_world_rank;
  size_t capacity;              ///< a power of two
  std::vector<void*>* retired;  ///< gets the ring's memory at the end: the peer may still be reading
};

std::unique_ptr<Link> make_ring_link(const RingEnds& ends);

/// To itself.
std::unique_ptr<Link> make_loopback_link();

}  // namespace trireme
