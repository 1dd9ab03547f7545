// What a rank has sent and received: counted, not believed.
#pragma once

#include <cstdint>

namespace trireme {

/// Rounds are the longest chain of dependent messages that ends at this rank: a batch of messages waited for together
/// is one round, whatever their number.
struct Traffic {
  uint64_t messages_sent = 0, messages_received = 0;
  uint64_t bytes_sent = 0, bytes_received = 0;  ///< payload only
  uint64_t rounds = 0;
};

}  // namespace trireme
