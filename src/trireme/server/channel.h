// One connection between a worker and a server, or between two servers: frames in, frames out by priority, never
// blocking.
#pragma once

#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/control/control_poller.h"
#include "trireme/comm/transport/socket.h"
#include "trireme/server/wire.h"

namespace trireme::server {

/// For statistics.
inline uint64_t nanoseconds(Clock::duration time) {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
}

/// Belongs to one thread. Registers itself with the poller, which must outlive it.
class Channel {
 public:
  Channel(control::Poller& poller, Socket socket);
  ~Channel();
  Channel(const Channel&) = delete;

  int fd() const { return socket_.fd(); }
  const Socket& socket() const { return socket_; }

  /// Appends frames that have arrived whole, at most a few megabytes of them, so that others get their turn. False when
  /// the stream has ended, or carried what no peer sends: then reason() says why.
  bool receive(std::vector<WireFrame>& frames);
  /// Frames of a smaller `priority` leave first, of one priority in order; a frame that has begun to leave goes on.
  /// `data` leaves piece after piece. A broken stream shows at the next receive().
  void send(Type type, uint64_t request, std::vector<std::byte> meta, std::vector<Block> data = {},
            uint32_t priority = 0);
  void flush();
  bool drained() const { return queue_.empty() && !sending_; }
  const std::string& reason() const { return reason_; }

  Clock::time_point heard() const { return heard_; }  ///< when something last came
  uint64_t bytes_in() const { return bytes_in_; }
  uint64_t bytes_out() const { return bytes_out_; }

 private:
  struct Outgoing {
    Type type;
    uint64_t request;
    std::vector<std::byte> meta;
    std::vector<Block> data;
  };
  struct Segment {
    const std::byte* data;
    size_t num_bytes;
  };

  bool parse(std::vector<WireFrame>& frames);
  void begin(Outgoing frame);
  void watch();

  control::Poller& poller_;
  Socket socket_;

  std::vector<std::byte> staged_;  ///< received and not yet parsed: [used_, filled_)
  size_t used_ = 0, filled_ = 0;
  std::array<std::byte, kHeaderBytes> header_bytes_;
  WireHeader header_;
  bool has_header_ = false, has_meta_ = false;
  WireFrame incoming_;
  size_t data_filled_ = 0;

  std::map<std::pair<uint32_t, uint64_t>, Outgoing> queue_;
  uint64_t num_queued_ = 0;
  Outgoing current_;
  std::array<std::byte, kHeaderBytes> current_header_;
  std::vector<Segment> segments_;
  size_t segment_ = 0;
  bool sending_ = false, watching_ = false, broken_ = false;

  std::string reason_ = "the connection was closed";
  Clock::time_point heard_ = Clock::now();
  uint64_t bytes_in_ = 0, bytes_out_ = 0;
};

}  // namespace trireme::server
