// Opens connections on a thread of its own, so that the thread that serves never waits for somebody who may be dead.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "trireme/comm/control/control_handshake.h"
#include "trireme/comm/control/control_poller.h"
#include "trireme/server/wire.h"

namespace trireme::server {

/// The first frame of a new connection is ours, the first answer comes with the connection.
struct Call {
  int number = 0;  ///< the caller's own
  SocketAddress address;
  control::Hello hello;
  Type type{};
  std::vector<std::byte> meta;
  Clock::duration patience{};
};

struct CallResult {
  int number = 0;
  Socket socket;  ///< valid: the other side has answered
  WireFrame answer;
  bool refused_at_once = false;             ///< nobody listens there: the process is gone
  std::string reason;                       ///< in words, where it did not
  std::optional<control::Refusal> refusal;  ///< where it said no at the door
};

/// Reads the first answer, which has no data; a server that was busy may have sent signs of life before it. Throws
/// SystemError or ProtocolError.
WireFrame receive_answer(const Socket& socket, Deadline deadline);
void send_small_frame(const Socket& socket, Type type, std::span<const std::byte> meta, Deadline deadline);

/// start() and take() are called by the thread that waits on `poller`, whose bell rings when a result is there. The
/// destructor waits for calls under way, at most for their patience.
class Dialer {
 public:
  Dialer(control::Poller& poller, control::Credentials credentials)
      : poller_(poller), credentials_(std::move(credentials)) {}
  ~Dialer();

  void start(Call call);
  std::vector<CallResult> take();

 private:
  CallResult dial(const Call& call) const;

  control::Poller& poller_;
  const control::Credentials credentials_;
  std::mutex mutex_;
  std::vector<CallResult> results_;
  std::vector<std::pair<std::thread, std::shared_ptr<std::atomic<bool>>>> threads_;
};

}  // namespace trireme::server
