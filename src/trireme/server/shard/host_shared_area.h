// Memory that a worker and a server of one host share, so that gradients and weights need not pass through a socket.
//
//   page 0      secret, then a flag for each slot: 0 free, 1 taken
//   pages 1 …   num_slots slots for what the worker sends, then as many for what the server sends
//
// The worker makes it: an anonymous memory file, sealed against shrinking, which the server opens through /proc. Frames
// on the socket say which slot holds their data. Whoever fills a slot takes it, whoever has read it sets it free; where
// none is free, data goes through the socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace trireme::server {

/// How a server finds the area.
struct HostSharedTicket {
  int pid = 0;
  int fd = -1;
  uint64_t secret = 0;  ///< also at the head of the file: a reused pid is not mistaken for the worker
  uint32_t num_slots = 0, slot_bytes = 0;
};

/// Movable. Each side calls it from one thread. Nothing blocks.
class HostSharedArea {
 public:
  HostSharedArea() = default;
  /// Nothing where the system has no memory files: sockets do as well.
  static HostSharedArea make(uint32_t num_slots, uint32_t slot_bytes);
  /// Nothing where it cannot be opened, is of another size, or could shrink under our feet.
  static HostSharedArea open(const HostSharedTicket& ticket);
  HostSharedArea(HostSharedArea&& other) noexcept;
  HostSharedArea& operator=(HostSharedArea&& other) noexcept;
  ~HostSharedArea();

  bool valid() const { return base_ != nullptr; }
  const HostSharedTicket& ticket() const { return ticket_; }

  enum class Side { kWorker, kServer };
  /// A slot to fill, of the sending side's; nothing when none is free or the data is too long.
  std::optional<uint32_t> take(Side sender, size_t num_bytes);
  /// Where the data of a slot lies; nothing for a slot that does not exist or data longer than it.
  std::span<std::byte> slot(Side sender, uint32_t number, size_t num_bytes) const;
  void release(Side sender, uint32_t number);

 private:
  HostSharedTicket ticket_;
  std::byte* base_ = nullptr;
  size_t size_ = 0;
};

}  // namespace trireme::server
