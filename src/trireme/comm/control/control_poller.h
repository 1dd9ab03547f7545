// epoll with a bell: what both background threads of the control plane wait on.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <cstdint>
#include <span>

#include "trireme/comm/transport/socket.h"

namespace trireme::control {

/// Level-triggered. ring() may be called from any thread; the rest belongs to the thread that waits.
class Poller {
 public:
  Poller();

  void add(int fd, uint32_t events);
  void modify(int fd, uint32_t events);
  void remove(int fd) noexcept;

  /// What is ready, without the bell. An event may be stale when its descriptor was closed a moment ago, so handlers
  /// try the call and take EAGAIN for an answer.
  std::span<const epoll_event> wait(int timeout_ms);
  /// Whether the last wait() may have left something ready behind.
  bool was_full() const { return num_events_ == events_.size(); }

  void ring() noexcept;

 private:
  Socket epoll_, bell_;
  std::array<epoll_event, 256> events_;
  size_t num_events_ = 0;
};

}  // namespace trireme::control
