// Where a rank's rings to its same-host peers are found, and the bell that wakes it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace trireme {

/// In shared memory, one for each member of a group; zero at the start.
struct Mailbox {
  alignas(64) std::atomic<uint32_t> bell;      ///< changed by peers to wake the owner
  std::atomic<uint32_t> sleepers;              ///< threads of the owner asleep on the bell
  std::atomic<uint32_t> left;                  ///< same-host members, the owner among them, that have left the group
  alignas(64) std::atomic<uint64_t> rings[1];  ///< place of the ring to each member; 0 until it exists

  static size_t num_bytes(int members) { return 64 + sizeof(Mailbox) + 8 * static_cast<size_t>(members); }
};

}  // namespace trireme
