// The door of a listening socket: strangers prove that they belong to the job before anything else sees them.
//
// A stranger may hold one small buffer for five seconds. There are at most `max_strangers` of them; the next one pushes
// out the oldest, with a reset, upon which an honest client tries again. Anything but a handshake is dropped without a
// word.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <unordered_map>

#include "trireme/comm/control/control_handshake.h"
#include "trireme/comm/control/control_poller.h"

namespace trireme::control {

struct GateLimits {
  size_t max_strangers = 512;
  Clock::duration patience = std::chrono::seconds(5);
};

/// Belongs to one thread, never blocks. The poller must outlive it.
class Gate {
 public:
  /// Asked once a stranger's proof is right: a reason to refuse it nevertheless, or nothing.
  using Judge = std::function<std::optional<Refusal>(const Hello&)>;
  /// Takes the connection of one who was let in; the next byte on it is the first after the handshake.
  using Admit = std::function<void(Socket, const Hello&)>;

  Gate(Poller& poller, Socket listener, Credentials credentials, Judge judge, Admit admit, GateLimits limits = {});
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  /// Handles an event of `fd`; false when it is none of this gate's.
  bool handle(int fd);
  /// Drops whoever has had their time; call it now and then, at the latest at next_tick().
  void tick(Clock::time_point now);
  Clock::time_point next_tick() const;

  size_t num_strangers() const { return strangers_.size(); }
  uint64_t num_dropped() const { return num_dropped_; }
  const Socket& listener() const { return listener_; }

 private:
  struct Stranger {
    Socket socket;
    Clock::time_point expires;
    Digest nonce{};
    std::array<std::byte, kMaxHandshakeBytes> buffer;
    size_t filled = 0;
    bool refused = false;
  };
  using Position = std::list<Stranger>::iterator;

  void accept_some();
  void greet(Socket socket);
  void read(Position stranger);
  void judge(Position stranger);
  void refuse(Position stranger, const Refusal& refusal);
  void drop(Position stranger, bool reset);

  Poller& poller_;
  Socket listener_;
  Credentials credentials_;
  Judge judge_;
  Admit admit_;
  GateLimits limits_;
  std::list<Stranger> strangers_;  ///< oldest first
  std::unordered_map<int, Position> by_fd_;
  std::optional<Clock::time_point> paused_until_;  ///< out of descriptors
  uint64_t num_dropped_ = 0;
};

}  // namespace trireme::control
