// A pipe for bytes to one peer and back: what a transport has to provide.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "trireme/base/deadline.h"

namespace trireme {

using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

/// Thrown by a link when its peer cannot be reached any more.
struct LinkBroken {
  int peer;  ///< world rank
  std::string reason;
};

/// Reliable and ordered in each direction. Never blocks for more than a moment. Used by one
/// thread at a time. The writer writes each frame as (header, payload) in calls that offer all that is left of the
/// header or of the payload, and the reader asks in the same way: links that keep message boundaries rely on it.
class Link {
 public:
  virtual ~Link() = default;
  /// Takes some of the bytes; returns how many (0: not now).
  virtual size_t write_some(ConstBytes data) = 0;
  /// Takes some of the header and then of the payload; links that can do it in one call override it.
  virtual size_t write_frame(ConstBytes header, ConstBytes payload) {
    if (header.empty()) return write_some(payload);
    const size_t taken = write_some(header);
    return taken < header.size() || payload.empty() ? taken : taken + write_some(payload);
  }
  virtual size_t read_some(Bytes data) = 0;
  /// Whether a frame is read by calls that ask for all of its header, then all of its payload, and the link may go on
  /// writing to the memory of the last call that returned 0.
  virtual bool keeps_messages() const { return false; }

  /// For poll(); -1 where there is nothing to poll (yet).
  virtual int read_fd() const { return -1; }
  virtual int write_fd() const { return -1; }
  /// `bytes` more are awaited: poll() may sleep on until so many have come, or as many as are worth waking for.
  virtual void expect(size_t bytes) { (void)bytes; }
};

}  // namespace trireme
