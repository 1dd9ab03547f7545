// A trusted control connection: frames in, frames out, never blocking.
#pragma once

#include <deque>
#include <vector>

#include "trireme/comm/control/control_poller.h"
#include "trireme/comm/control/control_protocol.h"
#include "trireme/comm/transport/socket.h"

namespace trireme::control {

/// Belongs to one thread. Registers itself with the poller, which must outlive it.
class Connection {
 public:
  Connection(Poller& poller, Socket socket);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int fd() const { return socket_.fd(); }

  /// Appends the frames that have arrived whole. False when the stream has ended, or carried what no peer sends; the
  /// frames before that are still there.
  bool receive(std::vector<Frame>& frames);

  /// Queues, and sends as much as the kernel takes. A broken stream shows at the next receive().
  void send(Bytes bytes);
  void flush();
  bool drained() const { return queue_.empty(); }
  /// No more will be sent; what was queued leaves first.
  void finish_sending();

 private:
  bool parse(std::vector<Frame>& frames);
  void watch();

  Poller& poller_;
  Socket socket_;
  std::vector<std::byte> incoming_;
  std::deque<Bytes> queue_;
  size_t sent_of_first_ = 0;
  bool watching_output_ = false;
  bool finishing_ = false;
  bool broken_ = false;
};

}  // namespace trireme::control
